"""Who runs next: pure logic over the cache. It knows no model, no thread and no clock."""

from __future__ import annotations

from sapwood.sched.bounds import Bounds
from sapwood.sched.coast import Coast
from sapwood.sched.draft import Drafts
from sapwood.sched.order import Order, order_for
from sapwood.sched.outcome import Admitted, Notice, Outcome, Refused
from sapwood.sched.scheduler import Scheduler
from sapwood.sched.sequence import Reuse, Sequence

__all__ = [
    "Admitted",
    "Bounds",
    "Coast",
    "Drafts",
    "Notice",
    "Order",
    "Outcome",
    "Refused",
    "Reuse",
    "Scheduler",
    "Sequence",
    "order_for",
]
