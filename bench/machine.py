"""Facts about this machine that a figure depends on. Never a host name, a user or a path."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""CPU features that decide which kernels run."""


def describe_machine(proc: Path = Path("/proc")) -> dict[str, Any]:
    info = _cpu_info(read_text(proc / "cpuinfo"))
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": available_cores(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "l3_bytes": _l3_bytes(),
        "memory_gib": _memory_gib(read_text(proc / "meminfo")),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def current_commit(folder: Path | None = None) -> str:
    """Short hash of the checked-out commit, `-dirty` where files differ from it; "unknown" outside our checkout.

    Results do not count: writing one does not change what the next one measures.
    """
    folder = folder or Path(__file__).parent
    if not _git(folder, "ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    results = (":(top,exclude)bench/results", ":(top,exclude)bench/RESULTS.md")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":(top)", *results)
    return f"{head}-dirty" if changes else head


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
    text = read_text(folder / "index3" / "size").strip()
    return int(text[:-1]) * 1024 if text.endswith("K") else None


def read_text(path: Path) -> str:
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
