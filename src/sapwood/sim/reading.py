"""Reads a trace, whatever its format: `read_trace` looks at what a file holds, never at its name alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.readers.arrivals import are_arrivals, is_table, read_arrivals
from sapwood.sim.readers.captured_trace import capture_trace
from sapwood.sim.readers.engine_logs import read_sglang, read_vllm
from sapwood.sim.readers.lmcache import read_lmcache
from sapwood.sim.readers.mooncake import read_mooncake
from sapwood.sim.readers.piped import source_at
from sapwood.sim.readers.requests import find_body, read_requests
from sapwood.sim.readers.servegen import read_servegen
from sapwood.sim.readers.source import Line, Source
from sapwood.sim.readers.tokenize import Tokenize
from sapwood.sim.readers.values import parsed
from sapwood.sim.readers.weka import read_weka
from sapwood.sim.trace import Trace

_LINES_LOOKED_AT = 2000
"""Before the first request a server's log may say much."""


@dataclass(frozen=True, slots=True)
class _Wishes:
    tokenize: Tokenize | None
    output_tokens: int | None
    seed: int
    in_a_row: bool

    @property
    def of_texts(self) -> Mapping[str, Any]:
        return {"tokenize": self.tokenize, "output_tokens": self.output_tokens}


_Reader = Callable[[Source, _Wishes], Trace]

_READERS: Mapping[str, _Reader] = MappingProxyType(
    {
        "mooncake": lambda source, _: read_mooncake(source),
        "weka": lambda source, wishes: read_weka(source, seed=wishes.seed, in_a_row=wishes.in_a_row),
        "lmcache": lambda source, wishes: read_lmcache(source, tokenize=wishes.tokenize),
        "arrivals": lambda source, _: read_arrivals(source),
        "requests": lambda source, wishes: read_requests(source, **wishes.of_texts),
        "vllm": lambda source, wishes: read_vllm(source, **wishes.of_texts),
        "sglang": lambda source, wishes: read_sglang(source, **wishes.of_texts),
        "servegen": lambda source, wishes: read_servegen(source, seed=wishes.seed),
        "capture": lambda source, _: capture_trace(source),
    }
)


def read_trace(
    path: Path,
    *,
    tokenize: Tokenize | None = None,
    output_tokens: int | None = None,
    seed: int = 0,
    in_a_row: bool = False,
) -> Trace:
    """The requests of a file, or of a pipe, or of stdin as `-`; plain or gzip or xz. Raises UsageError for one that
    cannot be read.

    Args:
        tokenize: for traces that hold texts; None counts bytes, scaled to what the trace tells of usage.
        output_tokens: of each answer of unknown length; None takes the mean of the known ones.
        seed: for what a trace leaves open: when its sessions begin, or, of statistics, all.
        in_a_row: sessions whose beginnings are not known come one after another instead of interleaved.
    """
    with source_at(path) as source:
        return _READERS[_kind(source)](source, _Wishes(tokenize, output_tokens, seed, in_a_row))


def _kind(source: Source) -> str:
    if source.path.is_dir():
        raise UsageError(f"{source} is a folder; a file was expected")
    first: Line | None = None
    counted = False
    for line in islice(source.lines(), _LINES_LOOKED_AT):
        if first is None and is_table(line.text):
            return "arrivals"
        first = first or line
        if (kind := _kind_of_line(line)) not in (None, "arrivals"):
            return kind
        counted |= kind is not None
    if counted:  # Another line may have had a prompt as well.
        return "arrivals"
    if first is None:
        raise UsageError(f"{source} is empty")
    raise UsageError(
        f"{source} is in no format that is known here; it begins with {first.text[:60]!r}",
        hint="docs/capture.md lists what can be read; a time, prompt_tokens and completion_tokens a line are enough",
    )


def _kind_of_line(line: Line) -> str | None:
    if not line.text.startswith("{"):
        return _kind_of_talk(line.text)
    try:
        fields = parsed(line.text)
    except ValueError:
        return None
    return _kind_of_row(fields) if isinstance(fields, dict) else None


def _kind_of_talk(text: str) -> str | None:
    """Of a line that is no JSON."""
    if re.fullmatch(r"[\d.]+,[\d.e-]+,[\d.e-]+,(Gamma|Weibull|),[\d.e-]+,[\d.e-]+", text):
        return "servegen"
    if "Receive: obj=" in text:
        return "sglang"
    asked = "Received request " in text or (": prompt: " in text and "details: " in text)
    return "vllm" if asked else None


def _kind_of_row(fields: Mapping[str, Any]) -> str | None:
    if str(fields.get("event", "")).startswith("request.") and "obj" in fields:
        return "sglang"
    if fields.get("capture") == "sapwood":
        return "capture"
    if "hash_ids" in fields:
        return "mooncake"
    if "block_size" in fields and "requests" in fields:
        return "weka"
    if isinstance(fields.get("input"), str) and "output" in fields and "timestamp" in fields:
        return "lmcache"
    if find_body(fields) is not None:
        return "requests"
    return "arrivals" if are_arrivals(fields) else None
