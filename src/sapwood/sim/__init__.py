"""The real cache, scheduler and routing on a virtual clock. Knows no model and no clock of its own."""

from __future__ import annotations

from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.run import Figure, Run
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import simulate
from sapwood.sim.trace import Trace, TraceRequest

__all__ = ["CostModel", "Figure", "Run", "Setup", "StepShape", "Trace", "TraceRequest", "simulate"]
