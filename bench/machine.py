"""Facts about this machine and its state that a figure depends on. Never a host name, a user or a path."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""CPU features that decide which kernels run."""


def describe_machine(proc: Path = Path("/proc")) -> dict[str, Any]:
    info = _cpu_info(_read(proc / "cpuinfo"))
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": available_cores(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "l3_bytes": _l3_bytes(),
        "memory_gib": _memory_gib(_read(proc / "meminfo")),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def current_commit(folder: Path | None = None) -> str:
    """Short hash of the checked-out commit, `-dirty` where files differ from it; "unknown" outside git."""
    folder = folder or Path(__file__).parent
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return f"{head}-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else head


@dataclass(frozen=True, slots=True)
class Load:
    """The machine's state at one moment; two of them say how disturbed what lay between was."""

    average_1m: float
    busy_ticks: int
    steal_ticks: int
    total_ticks: int

    @staticmethod
    def now(proc: Path = Path("/proc")) -> Load:
        """Zeros where the system does not tell."""
        fields = _read(proc / "stat").partition("\n")[0].split()[1:9]
        ticks = [int(field) for field in fields] + [0] * (8 - len(fields))
        average = float((_read(proc / "loadavg").split() or ["0"])[0])
        idle = ticks[3] + ticks[4]
        return Load(average, sum(ticks) - idle, ticks[7], sum(ticks))


def noise_between(before: Load, after: Load) -> Mapping[str, float]:
    """Load averages around a stretch of work, and the shares of its CPU time that ran and were stolen."""
    total = max(1, after.total_ticks - before.total_ticks)
    return {
        "load_1m_before": before.average_1m,
        "load_1m_after": after.average_1m,
        "busy_percent": round(100 * (after.busy_ticks - before.busy_ticks) / total, 1),
        "steal_percent": round(100 * (after.steal_ticks - before.steal_ticks) / total, 1),
    }


def _cpu_info(text: str) -> Mapping[str, str]:
    info: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            info.setdefault(name.strip(), value.strip())
    return info


def _memory_gib(text: str) -> float | None:
    for line in text.splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def _l3_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    text = _read(folder / "index3" / "size").strip()
    return int(text[:-1]) * 1024 if text.endswith("K") else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
