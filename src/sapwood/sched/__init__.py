"""Who runs next: pure logic over the cache. It knows no model, no thread and no clock."""

from __future__ import annotations

from sapwood.sched.order import Candidate, Order, order_for
from sapwood.sched.scheduler import Admitted, Notice, Outcome, Refused, Scheduler
from sapwood.sched.sequence import Reuse, Sequence

__all__ = [
    "Admitted",
    "Candidate",
    "Notice",
    "Order",
    "Outcome",
    "Refused",
    "Reuse",
    "Scheduler",
    "Sequence",
    "order_for",
]
