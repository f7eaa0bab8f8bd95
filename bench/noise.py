"""Whether a stretch of work had the machine for itself, as the system's own counters tell (Linux; else zeros)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .machine import read_text

DISTURBED_PERCENT = 2.0
"""From this share of the CPU time on, a row says that it was disturbed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The counters at one time; two of them say how disturbed what lay between was. Ticks are of all cores."""

    at: float
    load_1m: float
    busy_ticks: int
    steal_ticks: int
    total_ticks: int
    own_ticks: int
    """Of this process and of its children that have ended."""
    process_ticks: Mapping[int, int]
    """Of other processes that belong to the work, by pid."""

    @staticmethod
    def now(pids: Sequence[int] = (), proc: Path = Path("/proc")) -> Moment:
        fields = read_text(proc / "stat").partition("\n")[0].split()[1:9]
        ticks = [int(field) for field in fields] + [0] * (8 - len(fields))
        return Moment(
            at=time.perf_counter(),
            load_1m=float((read_text(proc / "loadavg").split() or ["0"])[0]),
            busy_ticks=sum(ticks) - ticks[3] - ticks[4] - ticks[7],  # without idle, waiting and stolen
            steal_ticks=ticks[7],
            total_ticks=sum(ticks),
            own_ticks=round(sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")),
            process_ticks={pid: _process_ticks(pid, proc) for pid in pids},
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """Shares are percent of the CPU time of all cores."""

    load_1m_before: float
    load_1m_after: float
    others_percent: float
    """Taken by processes that have nothing to do with the work."""
    steal_percent: float
    """Taken by the host."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of the row must know."""
        shares = (
            ("other processes", self.others_percent),
            ("the host", self.steal_percent),
        )
        return tuple(
            f"disturbed: {who} took {share:.0f} % of the CPU time"
            for who, share in shares
            if share >= DISTURBED_PERCENT
        )


def noise_between(before: Moment, after: Moment) -> Noise:
    total = max(1, after.total_ticks - before.total_ticks)
    known = after.own_ticks - before.own_ticks
    known += sum(after.process_ticks.values()) - sum(before.process_ticks.values())
    others = max(0, after.busy_ticks - before.busy_ticks - known)
    steal = after.steal_ticks - before.steal_ticks
    return Noise(before.load_1m, after.load_1m, round(100 * others / total, 1), round(100 * steal / total, 1))


def _process_ticks(pid: int, proc: Path) -> int:
    # The name in parentheses may hold spaces; what follows it is fixed: user and system time are 14th and 15th.
    fields = read_text(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0
