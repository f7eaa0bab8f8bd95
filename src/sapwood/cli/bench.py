"""`sapwood bench`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import sapwood
from sapwood.errors import UsageError

SUITES = ("serve", "cache", "kernels")


def bench(
    suite: Annotated[str, typer.Argument(help="serve, cache or kernels.", metavar="SUITE")] = "serve",
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="URL", help="serve: the peer, any OpenAI-compatible server."),
    ] = None,
    ours: Annotated[
        str | None, typer.Option("--ours", metavar="URL", help="serve: a Sapwood server that runs already.")
    ] = None,
    llama_server: Annotated[
        str | None,
        typer.Option("--llama-server", metavar="PATH", help="serve: llama.cpp's server as the peer."),
    ] = None,
    cases: Annotated[
        str | None, typer.Option("--cases", metavar="A,B", help="serve: only these cases.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option("--pairs", metavar="N", help="serve: how often each server runs each case.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="Of each server, or of the kernels.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes; the figures mean nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The long versions.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write the document there.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Nothing but the document on stdout.")] = False,
) -> None:
    """Measure this machine: serving against a peer, the cache alone, or the kernels."""
    if suite not in SUITES:
        raise UsageError(f"there is no suite {suite!r}", hint=f"choose one of {', '.join(SUITES)}")
    values = {
        "--against": against,
        "--ours": ours,
        "--llama-server": llama_server,
        "--cases": cases,
        "--pairs": pairs,
        "--threads": threads,
        "--out": out,
    }
    switches = {"--quick": quick, "--full": full, "--json": json}
    arguments = [suite, *(f"{flag}={value}" for flag, value in values.items() if value is not None)]
    arguments += [flag for flag, on in switches.items() if on]
    raise typer.Exit(_harness().main(arguments))


def _harness() -> Any:
    """The harness lies beside `src` in a checkout, and inside the package in a wheel."""
    here = Path(sapwood.__file__).parent
    if (here / "bench").is_dir():
        return importlib.import_module("sapwood.bench.command")
    checkout = here.parents[1]
    if not (checkout / "bench" / "command.py").is_file():
        raise UsageError(
            "this installation has no benchmarks", hint="run it from a checkout: python -m bench"
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("bench.command")
