"""The command line. Data goes to stdout, talk to stderr; 0 done, 1 it failed, 2 wrong usage, 130 after Ctrl-C."""

from __future__ import annotations

from sapwood.cli.main import main

__all__ = ["main"]
