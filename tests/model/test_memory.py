"""How much memory pages get by default: a share of what is free, control groups included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.model import memory

GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    """8 GiB are available."""
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


def group(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"memory.{name}").write_text(text)
    return tmp_path


def test_without_a_control_group_the_system_says(tmp_path: Path, meminfo: Path) -> None:
    assert memory.free_memory(tmp_path / "none", meminfo) == 8 * GIB


def test_a_control_group_lowers_it(tmp_path: Path, meminfo: Path) -> None:
    tight = group(tmp_path, max=f"{3 * GIB}\n", current=f"{GIB}\n", stat="anon 5\n")
    assert memory.free_memory(tight, meminfo) == 2 * GIB


def test_a_control_groups_file_cache_counts_as_free(tmp_path: Path, meminfo: Path) -> None:
    """A group that has read a large model file is full of cache, and can still give memory."""
    cached = group(tmp_path, max=str(3 * GIB), current=str(3 * GIB), stat=f"file 7\ninactive_file {GIB}\n")
    assert memory.free_memory(cached, meminfo) == GIB


@pytest.mark.parametrize(
    "files",
    [
        {"max": "max\n", "current": "5", "stat": ""},
        {"max": str(64 * GIB), "current": "0", "stat": ""},
        {"max": str(GIB), "current": "much", "stat": ""},
        {"max": str(GIB), "current": "5"},
    ],
    ids=["no limit", "a limit above the system's", "unreadable", "half there"],
)
def test_else_the_system_counts(files: dict[str, str], tmp_path: Path, meminfo: Path) -> None:
    assert memory.free_memory(group(tmp_path, **files), meminfo) == 8 * GIB


def test_an_overdrawn_control_group_has_nothing(tmp_path: Path, meminfo: Path) -> None:
    assert memory.free_memory(group(tmp_path, max="100", current="200", stat=""), meminfo) == 0


@pytest.mark.parametrize("text", ["", "MemAvailable: x kB\n", "MemFree: 5 kB\n"])
def test_without_meminfo_half_of_the_memory_is_taken_for_free(text: str, tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text(text)
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert memory.free_memory(tmp_path, path) == half
    assert memory.free_memory(tmp_path, tmp_path / "none") == half


def test_this_machine_has_some_memory() -> None:
    assert 0 < memory.free_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("free", "expected", "reason"),
    [
        (8 * GIB, 2 * GIB, "the default, a quarter of 8 GiB free"),
        (GIB // 2, GIB // 8, "the default, a quarter of 512 MiB free"),
        (64 * GIB, 4 * GIB, "the default is a quarter of free memory, at most 4 GiB"),
    ],
)
def test_pages_get_a_quarter_up_to_a_limit(
    free: int, expected: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    assert memory.default_kv_memory() == memory.KvMemory(expected, reason)
