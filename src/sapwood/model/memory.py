"""How much memory the pages may take when nobody says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sapwood.units import format_size

SHARE = 0.25
"""Of the memory that is free now: the rest is for weights, other programs and the system's file cache."""
MOST = 4 * 2**30


@dataclass(frozen=True, slots=True)
class KvMemory:
    """Bytes for pages, and why that many (shown at start-up)."""

    nbytes: int
    reason: str


def default_kv_memory() -> KvMemory:
    free = free_memory()
    nbytes = min(int(free * SHARE), MOST)
    if nbytes == MOST:
        return KvMemory(nbytes, f"the default is a quarter of free memory, at most {format_size(MOST)}")
    return KvMemory(nbytes, f"the default, a quarter of {format_size(free)} free")


def free_memory(group: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes available now: the least of what the system and the control group still give."""
    limits = [_system_free(meminfo)]
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit.isdigit():
            used = int((group / "memory.current").read_text()) - _reclaimable(group / "memory.stat")
            limits.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(limits)


def _reclaimable(stat: Path) -> int:
    """File cache counts as used by a control group, but is given up when memory is asked for."""
    for line in stat.read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _system_free(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
