"""The command line: `python -m bench [all|serve|kernels|step|perplexity|cache|report]`.

Data to stdout, talk to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from .errors import BenchError, BenchUsageError

HERE = Path(__file__).parent


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BenchUsageError(f"{message.removeprefix('argument ')}\n\nhint: {self.prog} --help")


def main(arguments: Sequence[str] | None = None, called_as: Sequence[str] | None = None) -> int:
    """Exit status 0 done, 1 failed, 2 wrong usage.

    `called_as` is the command as its user typed it, where that was another one: results and errors show it.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["all", *given]
    name = "bench" if called_as is None else called_as[0]
    try:
        options = parser().parse_args(given)
        options.given = given
        options.typed = list(called_as or options.called_as or ["python", "-m", "bench", *given])
        name = "bench" if options.typed[0] == "python" else options.typed[0]
        check_out(options.out)
        check_traces(getattr(options, "trace", ()))
        return _run(options)
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, BenchUsageError) else 1


def parser() -> argparse.ArgumentParser:
    root = _Parser("python -m bench", description="Figures with their story.")
    root.set_defaults(called_as=None, out=None)
    suites = root.add_subparsers(dest="suite", required=True)
    serve = suites.add_parser("serve", help="ours and a peer, paired and interleaved")
    _add_common(serve)
    _add_servers(serve)
    kernels = suites.add_parser("kernels", help="native ops, BLAS and the machine's floors")
    _add_common(kernels)
    kernels.add_argument("--threads", type=_count, default=2)
    kernels.add_argument("--only", choices=("linear", "attention"), help="leave the other out")
    kernels.add_argument("--called-as", type=json.loads, help=argparse.SUPPRESS)
    perplexity = suites.add_parser("perplexity", help="how well a model foretells a book, by --compute")
    _add_common(perplexity)
    perplexity.add_argument("--model", default="smollm2-135m", help="as `sapwood serve` takes it")
    perplexity.add_argument("--threads", type=_count, default=2)
    cache = suites.add_parser("cache", help="the prefix cache and the scheduler, without a server")
    _add_common(cache)
    cache.add_argument("--cases", help="only these, separated by commas")
    cache.add_argument(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="replay this one, in Mooncake's format, instead of those that come along; may be repeated",
    )
    _add_common(suites.add_parser("step", help="how much of a decode step is spent outside the kernels"))
    report = suites.add_parser("report", help="results/*.json → RESULTS.md")
    report.add_argument("--results", type=Path, default=HERE / "results")
    report.add_argument("--out", type=Path, default=HERE / "RESULTS.md")
    everything = suites.add_parser(
        "all", help="kernels, cache, step and serve, their results and the report (default)"
    )
    _add_size(everything)
    _add_peers(everything)
    everything.add_argument("--pairs", type=int, help="of serve")
    everything.add_argument("--case-seconds", type=float, metavar="S", help="of serve")
    return root


def _add_peers(suite: argparse.ArgumentParser) -> None:
    suite.add_argument(
        "--peers",
        default="auto",
        metavar="A,B",
        help="llama, vllm, openvino, transformers; auto: those that are here; none",
    )
    suite.add_argument(
        "--peers-folder",
        type=Path,
        metavar="DIR",
        help="where `make peers` put them; else SAPWOOD_PEERS, else .venv/peers",
    )
    suite.add_argument("--llama-server", metavar="PATH", help="else LLAMA_SERVER, that folder, or PATH")


def check_out(file: Path | None) -> None:
    """Before minutes are spent on what could not be written. Raises BenchUsageError."""
    if file is None:
        return
    if file.is_dir():
        raise BenchUsageError(f"--out is {str(file)!r}, a folder; expected the name of a file")
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise BenchUsageError(f"--out is {str(file)!r}, which cannot be written")


def check_traces(files: Iterable[Path]) -> None:
    """Before minutes are spent on other cases. Raises BenchUsageError."""
    for file in files:
        if not file.is_file():
            raise BenchUsageError(f"--trace is {str(file)!r}, which is no file")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _add_common(suite: argparse.ArgumentParser) -> None:
    _add_size(suite)
    suite.add_argument("--out", type=Path, help="also write the document to this file")
    suite.add_argument("--json", action="store_true", help="the document on stdout, not the table")


def _add_size(suite: argparse.ArgumentParser) -> None:
    size = suite.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", dest="size", action="store_const", const="quick", help="only prove that it works"
    )
    size.add_argument("--full", dest="size", action="store_const", const="full", help="the long versions")
    suite.set_defaults(size="normal")


def _add_servers(serve: argparse.ArgumentParser) -> None:
    _add_peers(serve)
    serve.add_argument(
        "--against", metavar="URL", help="the peer: any OpenAI-compatible server that runs already"
    )
    serve.add_argument("--api-key", metavar="KEY", help="that the server of --against wants")
    serve.add_argument(
        "--against-model", metavar="NAME", help="of its models; default the first that it lists"
    )
    serve.add_argument(
        "--alone", action="store_true", help="measure the server of --against, and none of ours"
    )
    serve.add_argument("--ours", metavar="URL", help="a server of ours that runs already")
    serve.add_argument("--serve-arg", action="append", default=[], help="passed on to ours; may be repeated")
    serve.add_argument("--model", default="smollm2-135m", help="as `sapwood serve` takes it")
    serve.add_argument(
        "--or-model",
        action="append",
        default=[],
        metavar="MODEL",
        help="the same weights in another format: each case takes the faster one; may be repeated",
    )
    serve.add_argument("--threads", type=_count, default=2, help="of each server")
    serve.add_argument("--cases", help="only these, separated by commas")
    serve.add_argument("--pairs", type=int, help="how often each server runs each case")
    serve.add_argument(
        "--case-seconds",
        type=float,
        metavar="S",
        help="begin no further pair of a case that took so long",
    )
    serve.add_argument(
        "--seed", type=int, help="of the prompts; default 1, or a new one against running servers"
    )


def _run(options: argparse.Namespace) -> int:
    if options.suite == "all":
        return _run_all(options)
    # Each suite's own imports: a report needs no numpy, serving no kernels.
    if options.suite == "serve":
        from .serve_command import run_serve

        return run_serve(options)
    if options.suite == "kernels":
        from .kernels import run_kernels

        return run_kernels(options)
    if options.suite == "perplexity":
        from .perplexity import run_perplexity

        return run_perplexity(options)
    if options.suite == "cache":
        from .cache import run_cache

        return run_cache(options)
    if options.suite == "step":
        from .step import run_step

        return run_step(options)
    from .report import write_report

    count = write_report(options.results, options.out)
    print(f"{options.out.name} tells of {count} results", file=sys.stderr)
    return 0


def _run_all(options: argparse.Namespace) -> int:
    """Every suite with its result file, then the report; quick runs write nothing, for they measure nothing."""
    size = [] if options.size == "normal" else [f"--{options.size}"]
    passed = {
        "--peers": options.peers,
        "--peers-folder": options.peers_folder,
        "--llama-server": options.llama_server,
        "--pairs": options.pairs,
        "--case-seconds": options.case_seconds,
    }
    peer = [f"{flag}={value}" for flag, value in passed.items() if value is not None]
    for suite in ("kernels", "cache", "step", "serve"):
        out = (
            [] if options.size == "quick" else ["--out", os.path.relpath(HERE / "results" / f"{suite}.json")]
        )
        status = main([suite, *size, *out, *(peer if suite == "serve" else [])])
        if status != 0:
            return status
    return 0 if options.size == "quick" else main(["report"])
