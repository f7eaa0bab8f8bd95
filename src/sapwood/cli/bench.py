"""`sapwood bench`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

import sapwood
from sapwood.cli.flags import MOST_THREADS, file_name, filled, one_of, real, whole
from sapwood.errors import UsageError

SUITES = ("serve", "cache", "kernels")
_OF_SERVE = ("serve",)
_GO_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--against": _OF_SERVE,
        "--against-model": _OF_SERVE,
        "--api-key": _OF_SERVE,
        "--ours": _OF_SERVE,
        "--peers": _OF_SERVE,
        "--peers-folder": _OF_SERVE,
        "--llama-server": _OF_SERVE,
        "--cases": ("serve", "cache"),
        "--pairs": _OF_SERVE,
        "--case-seconds": _OF_SERVE,
        "--threads": ("serve", "kernels"),
        "--trace": ("cache",),
    }
)
"""Flags that not every suite has."""


def bench(
    context: typer.Context,
    suite: Annotated[
        str,
        typer.Argument(help="serve, cache or kernels.", metavar="SUITE", parser=one_of("SUITE", SUITES)),
    ] = "serve",
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="URL",
            help="serve: the peer, any OpenAI-compatible server.",
            parser=filled("--against"),
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help="serve: that the server of --against wants.",
            parser=filled("--api-key"),
        ),
    ] = None,
    against_model: Annotated[
        str | None,
        typer.Option(
            "--against-model",
            metavar="NAME",
            help="serve: which of its models; default the first that it lists.",
            parser=filled("--against-model"),
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="serve: measure the server of --against, and none of ours.")
    ] = False,
    ours: Annotated[
        str | None,
        typer.Option(
            "--ours",
            metavar="URL",
            help="serve: a Sapwood server that runs already.",
            parser=filled("--ours"),
        ),
    ] = None,
    llama_server: Annotated[
        str | None,
        typer.Option(
            "--llama-server",
            metavar="PATH",
            help="serve: llama.cpp's server as the peer.",
            parser=file_name("--llama-server"),
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="A,B",
            help="serve: llama, vllm, openvino, transformers; auto (those that are here) or none.",
            parser=filled("--peers"),
        ),
    ] = None,
    peers_folder: Annotated[
        str | None,
        typer.Option(
            "--peers-folder",
            metavar="DIR",
            help="serve: where `make peers` put them; else SAPWOOD_PEERS, else .venv/peers.",
            parser=file_name("--peers-folder"),
        ),
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases",
            metavar="A,B",
            help="serve, cache: only these cases; a wrong one is answered with all there are.",
            parser=filled("--cases"),
        ),
    ] = None,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="cache: replay this one, in Mooncake's format; may be repeated.",
            parser=file_name("--trace"),
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            metavar="N",
            help="serve: how often each server runs each case.",
            parser=whole("--pairs", 1),
        ),
    ] = None,
    case_seconds: Annotated[
        float | None,
        typer.Option(
            "--case-seconds",
            metavar="S",
            help="serve: begin no further pair of a case that took so long.",
            parser=real("--case-seconds", 0, 1e6),
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            help="Of each server, or of the kernels; default 2.",
            parser=whole("--threads", 1, MOST_THREADS),
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes; the figures mean nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The long versions.")] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Also write the document there.", parser=file_name("--out")
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The document on stdout, not the table.")] = False,
) -> None:
    """Measure this machine: serving against a peer, the cache alone, or the kernels."""
    if quick and full:
        raise UsageError("--quick and --full exclude each other")
    values = {
        "--against": against,
        "--against-model": against_model,
        "--api-key": api_key,
        "--ours": ours,
        "--peers": peers,
        "--peers-folder": peers_folder,
        "--llama-server": llama_server,
        "--cases": cases,
        "--pairs": pairs,
        "--case-seconds": case_seconds,
        "--threads": threads,
        "--out": out,
    }
    given = [(flag, value) for flag, value in values.items() if value is not None]
    given += [("--trace", file) for file in trace or ()]
    for flag, _ in given:
        if suite not in _GO_WITH.get(flag, SUITES):
            raise UsageError(f"{flag} goes with {' and '.join(_GO_WITH[flag])}, not with {suite}")
    if alone and suite != "serve":
        raise UsageError(f"--alone goes with serve, not with {suite}")
    switches = {"--alone": alone, "--quick": quick, "--full": full, "--json": json}
    arguments = [suite, *(f"{flag}={value}" for flag, value in given)]
    arguments += [flag for flag, on in switches.items() if on]
    raise typer.Exit(_harness().main(arguments, called_as=["sapwood", *context.obj]))


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
