"""The verbs, and what becomes of what they raise."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import typer

from sapwood import __version__
from sapwood.cli.bench import bench
from sapwood.cli.chat import chat
from sapwood.cli.complaints import usage_error, verb_error
from sapwood.cli.plan import plan
from sapwood.cli.pull import pull
from sapwood.cli.run import run
from sapwood.cli.serve import serve
from sapwood.cli.terminated import Terminated, told_of_termination
from sapwood.errors import SapwoodError, UsageError

VERBS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "serve": serve,
        "run": run,
        "chat": chat,
        "pull": pull,
        "bench": bench,
        "plan": told_of_termination(plan),
    }
)
INTERRUPTED, TERMINATED = 130, 143
"""Exit status after Ctrl-C, and after SIGTERM, as shells count it: 128 and the signal's number."""
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _Interrupted(Exception):
    """Ctrl-C, under a name that the parser does not treat in its own way."""


class _Terminated(_Interrupted):
    """SIGTERM, likewise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _run(given)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except UsageError as error:
        return _complain(str(error), 2)
    except SapwoodError as error:
        return _complain(str(error), 1)
    except _Terminated:
        return _complain("terminated", TERMINATED)
    except (_Interrupted, KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our stdout has left, and knows it.
        _drop_stdout()
        return 1
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        _drop_stdout()
        return _complain(f"cannot write: {error.strerror}", 1)


def _run(given: list[str]) -> int:
    """Raises SapwoodError, UsageError also for what the parser refuses."""
    if (wrong := verb_error(given, tuple(VERBS))) is not None:
        raise wrong
    command = typer.main.get_command(_app())
    try:
        status = command.main(args=given, prog_name="sapwood", standalone_mode=False, obj=given)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise usage_error(error, given, tuple(VERBS)) from None
    return status if isinstance(status, int) else 0


def _app() -> typer.Typer:
    app = typer.Typer(
        help="Serves open-weight language models and never computes the same prefix twice.",
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=False,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name, verb in VERBS.items():
        app.command(name)(_interruptible(verb))
    return app


def _interruptible(verb: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(verb)
    def called(*arguments: Any, **options: Any) -> None:
        try:
            verb(*arguments, **options)
        except Terminated:
            raise _Terminated from None
        except KeyboardInterrupt:
            raise _Interrupted from None

    return called


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


def _drop_stdout() -> None:
    """Nothing more may be written there, or Python complains once more while it shuts down."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        sys.stdout = None


def _complain(message: str, status: int) -> int:
    print(f"sapwood: {message}", file=sys.stderr)
    return status
