"""The house: which room may import which. You may import down the stairs, never up and never across."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sapwood

SRC = Path(__file__).parent.parent / "src" / "sapwood"

MAY_IMPORT: dict[str, set[str]] = {
    "types": {"errors"},
    "plan": {"types"},
    "config": {"errors"},
    "errors": set(),
    "units": {"errors"},
    "orphans": set(),
    "cache": {"types", "plan", "config", "errors"},
    "chat": {"types", "plan", "config", "errors", "units"},
    "model": {"types", "plan", "config", "errors", "units"},
    "sched": {"types", "plan", "config", "errors", "cache"},
    "contract": {"types", "config", "errors"},
    "routing": {"types", "config", "errors", "cache"},
    "sim": {"types", "plan", "config", "errors", "units", "orphans", "cache", "sched", "routing"},
    "engine": {"types", "plan", "config", "errors", "cache", "sched", "chat", "model"},
    "server": {"types", "plan", "config", "errors", "engine", "chat", "contract", "__init__"},
    "llm": {"types", "plan", "config", "errors", "units", "engine", "chat"},
    "cli": {
        "types",
        "plan",
        "config",
        "errors",
        "units",
        "engine",
        "chat",
        "model",
        "server",
        "sim",
        "routing",
        "llm",
        "__init__",
    },
    "__main__": {"cli"},
    "__init__": {"errors", "types", "llm"},
}
"""Room → rooms it may import. Floor 0 reads the standard library alone; `cli` is the roof."""

WITHOUT_MODEL = {"cache", "sched", "contract", "routing", "sim"}
"""Rooms that install and test without arrays of weights: of third parties they may import numpy only."""


def files() -> Iterator[Path]:
    yield from sorted(SRC.rglob("*.py"))


def room_of(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield str(node.module), node.lineno


def rooms_imported(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "sapwood":
            yield (parts[1] if len(parts) > 1 else "__init__"), line


@pytest.mark.parametrize("path", list(files()), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_down_the_stairs(path: Path) -> None:
    room = room_of(path)
    assert room in MAY_IMPORT, f"{path} is in no room of the house"
    for other, line in rooms_imported(path):
        assert other == room or other in MAY_IMPORT[room], f"{path}:{line}: {room} may not import {other}"


@pytest.mark.parametrize("path", [p for p in files() if room_of(p) in WITHOUT_MODEL], ids=lambda p: p.name)
def test_the_core_reads_no_clock_and_needs_only_numpy(path: Path) -> None:
    for name, line in imports(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names | {"sapwood", "numpy"}, f"{path}:{line}: imports {name}"
        assert top not in {"time", "datetime", "asyncio", "threading"}, f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("path", list(files()), ids=lambda p: str(p.relative_to(SRC)))
def test_no_room_keeps_mutable_state_in_a_module(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if names == ["__all__"] or value is None:
            continue
        mutable = isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp)
        assert not mutable, (
            f"{path}:{node.lineno}: {names} is mutable; use MappingProxyType, tuple or frozenset"
        )
    for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(each, ast.Global), f"{path}:{each.lineno}: no global statement"


@pytest.mark.parametrize(
    "room", ["cache", "chat", "contract", "engine", "model", "routing", "sched", "server", "sim"]
)
def test_each_room_has_a_front_that_exists(room: str) -> None:
    front = importlib.import_module(f"sapwood.{room}")
    assert len(front.__all__) == len(set(front.__all__)) > 0
    for name in front.__all__:
        assert hasattr(front, name), f"sapwood.{room}.__all__ names {name}, which is not there"


def test_the_package_front_is_what_it_says() -> None:
    for name in sapwood.__all__:
        assert hasattr(sapwood, name)
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        _ = sapwood.nothing_of_the_sort
