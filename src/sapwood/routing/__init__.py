"""Which replica: pure logic over the cache. It knows no network, no thread and no clock."""

from __future__ import annotations

from sapwood.routing.choose import Candidate, Router, Ticket

__all__ = ["Candidate", "Router", "Ticket"]
