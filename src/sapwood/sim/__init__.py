"""The real cache, scheduler and routing on a virtual clock. Knows no model and no clock of its own."""

from __future__ import annotations

from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.rates import Definition, Rate
from sapwood.sim.reading import read_trace
from sapwood.sim.trace import Trace, TraceRequest

__all__ = ["CostModel", "Definition", "Rate", "StepShape", "Trace", "TraceRequest", "read_trace"]
