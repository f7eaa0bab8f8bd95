"""How long work tells how far it is: a line such as `replaying: lru, 3 of 10`, the stage before the colon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]
