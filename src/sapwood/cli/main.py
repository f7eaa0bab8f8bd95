"""The verbs, and what becomes of what they raise."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sapwood import __version__
from sapwood.cli.bench import bench
from sapwood.cli.chat import chat
from sapwood.cli.flags import nearest
from sapwood.cli.pull import pull
from sapwood.cli.run import run
from sapwood.cli.serve import serve
from sapwood.errors import SapwoodError, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    command = typer.main.get_command(_app())
    try:
        status = command.main(args=arguments, prog_name="sapwood", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except UsageError as error:
        return _complain(str(error), 2)
    except SapwoodError as error:
        return _complain(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 1)
    except BrokenPipeError:
        # The reader of our stdout has left; nothing may be written there while Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _complain(_usage_message(error), 2)


def _app() -> typer.Typer:
    app = typer.Typer(
        help="Serves open-weight language models and never computes the same prefix twice.",
        add_completion=False,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for verb in (serve, run, chat, pull, bench):
        app.command()(verb)
    return app


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


def _usage_message(error: Any) -> str:
    """The parser's own complaint; for an unknown flag or verb, with the nearest one that exists."""
    context = getattr(error, "ctx", None)
    hint = f"\n\nhint: {context.command_path} --help" if context is not None else ""
    flag = getattr(error, "option_name", None)
    if flag is not None and hasattr(error, "possibilities") and context is not None:
        names = [name for parameter in context.command.params for name in parameter.opts]
        flags = [*(name for name in names if name.startswith("--")), "--help"]
        return f"there is no flag {flag}; did you mean {nearest(flag, flags)}?{hint}"
    return f"{error.format_message()}{hint}"


def _complain(message: str, status: int) -> int:
    print(f"sapwood: {message}", file=sys.stderr)
    return status
