"""A request as a log tells it, before all of the log is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sapwood.sim.readers.tokenize import Tokenize, as_names
from sapwood.sim.readers.usage import Usage
from sapwood.sim.trace import Names

Said: TypeAlias = Names | bytes
"""Tokens; or, where nothing makes tokens of it, a text in UTF-8."""

NOTHING: Names = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Attributes:
    arrival: seconds; None where nobody told.
    prompt: not empty.
    reply: empty where it is not there.
    usage: what a gateway or an engine counted.
    limit: the longest answer that was asked for.
    session: None where nobody told.
    scope: as in `TraceRequest`.
    """

    arrival: float | None
    prompt: Said
    reply: Said = field(default_factory=lambda: NOTHING)
    usage: Usage = field(default_factory=Usage)
    limit: int | None = None
    session: str | None = None
    scope: int = 0


def said(text: str, tokenize: Tokenize | None) -> Said:
    return text.encode("utf-8", "surrogatepass") if tokenize is None else as_names(tokenize(text))
