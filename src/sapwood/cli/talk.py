"""What a person at the terminal sees on stderr while waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from sapwood.errors import UsageError


class Talk:
    """Lines and spinners on stderr; in a pipe, one plain line for each stage."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def aside(self, piece: str) -> None:
        """A piece of a line, said more quietly."""
        self._console.print(piece, end="", style="dim", soft_wrap=True)

    def ask(self, prompt: str) -> str | None:
        """A line from stdin, or None at its end. The prompt is shown to people only."""
        if self._console.is_terminal:
            self._console.print(prompt, end="")
        try:
            return input()
        except EOFError:
            return None
        except UnicodeDecodeError:
            raise UsageError("what stdin holds is no text in UTF-8") from None
        except KeyboardInterrupt:
            if self._console.is_terminal:
                self._console.print()
            raise

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """A spinner while the block lasts. What is yielded takes the latest step's name."""
        if not self._console.is_terminal:
            yield _Stages(self.say)
            return
        with self._console.status(what) as status:
            yield status.update


class _Stages:
    """Says a step only when its stage (what is before the colon) is new."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._last = say, ""

    def __call__(self, step: str) -> None:
        stage = step.partition(":")[0]
        if stage != self._last:
            self._last = stage
            self._say(stage)
