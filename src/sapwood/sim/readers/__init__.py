"""One reader for each format of trace; `sapwood.sim.reading` finds the one that a file needs."""

from __future__ import annotations

from sapwood.sim.readers.tokenize import Tokenize

__all__ = ["Tokenize"]
