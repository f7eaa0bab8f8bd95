"""What a client script and the test that started it say to each other: lines of JSON, both ways.

Runs in the client's process, in the environment of the client: it needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import string
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO


class Stage:
    """What a scene may use besides its client.

    Attributes:
        url: of the server.
    """

    def __init__(self, url: str, out: TextIO) -> None:
        self.url, self._out = url, out

    def say(self, text: str) -> None:
        """What the model says from now on."""
        self.tell(say=text)

    def wait(self, seconds: float) -> None:
        """Let the server's clock go on; nobody sleeps."""
        self.tell(wait=seconds)

    def tell(self, **line: Any) -> None:
        """Says a line, and waits until the test has done what it asks."""
        print(json.dumps(line), file=self._out, flush=True)
        assert sys.stdin.readline() == "done\n", "the test has ended"


Scene = Callable[[Stage], object]


def play(version: str, *scenes: Scene) -> None:
    """Plays scenes in turn, each before a server with nothing cached and nothing promised, and tells what each
    returned, or how it failed. What a client prints goes to the standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    stage = Stage(sys.argv[1], out)
    stage.tell(version=version)
    for scene in scenes:
        stage.tell(begin=scene.__name__)
        try:
            stage.tell(scene=scene.__name__, told=scene(stage))
        except Exception:
            stage.tell(scene=scene.__name__, failed=traceback.format_exc())


def letters(count: int) -> str:
    """A text of so many of the fake model's tokens."""
    return (string.ascii_lowercase * (count // 26 + 1))[:count]
