"""The real cache, scheduler and routing on a virtual clock. Knows no model and no clock of its own."""

from __future__ import annotations

from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import Hardware, hardware_named
from sapwood.sim.model_shape import ModelShape, shape_named
from sapwood.sim.rates import Definition, Rate
from sapwood.sim.reading import read_trace
from sapwood.sim.run import Figure, Run
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import simulate
from sapwood.sim.trace import Trace, TraceRequest

__all__ = [
    "CostModel",
    "Definition",
    "Figure",
    "FlopCost",
    "Hardware",
    "ModelShape",
    "Rate",
    "Run",
    "Setup",
    "StepShape",
    "Trace",
    "TraceRequest",
    "hardware_named",
    "read_trace",
    "shape_named",
    "simulate",
]
