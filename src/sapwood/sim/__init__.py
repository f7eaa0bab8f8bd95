"""The real cache, scheduler and routing on a virtual clock. Knows no model and no clock of its own."""

from __future__ import annotations

from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.trace import Trace, TraceRequest

__all__ = ["CostModel", "StepShape", "Trace", "TraceRequest"]
