"""The real cache, scheduler and routing on a virtual clock. Knows no model and no clock of its own."""

from __future__ import annotations

from sapwood.sim.cost import CostModel, StepShape
from sapwood.sim.cost_source import FORMULA, TEXT, cost_from
from sapwood.sim.curve import CurvePoint, curves
from sapwood.sim.demand import Demand, beyond_context, without_names
from sapwood.sim.design import Case, Design, Judge, Outcome, Row
from sapwood.sim.engine_spec import EngineSpec
from sapwood.sim.flops import FlopCost
from sapwood.sim.goals import Goals, Shortfall
from sapwood.sim.hardware import Hardware, hardware_named, spanning
from sapwood.sim.judge import SimulatingJudge
from sapwood.sim.knees import knees
from sapwood.sim.known_models import KNOWN_MODELS, shape_named
from sapwood.sim.load import keeping_up
from sapwood.sim.model_shape import ModelShape
from sapwood.sim.pages import in_pages
from sapwood.sim.planner import Plan, Planner
from sapwood.sim.progress import Progress
from sapwood.sim.rates import Definition, Rate, unbounded_rates
from sapwood.sim.readers.capture import header_of
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.tokenize import Tokenize, text_bytes
from sapwood.sim.reading import read_trace
from sapwood.sim.replies import with_replies
from sapwood.sim.roofline import RooflineCost
from sapwood.sim.run import Figure, Run
from sapwood.sim.segments import Segments
from sapwood.sim.setup import Setup
from sapwood.sim.simulate import simulate
from sapwood.sim.space import TRIED_PAGES, TRIED_ROUTINGS, Space, capacities_up_to
from sapwood.sim.stack import LruStack
from sapwood.sim.trace import Trace, TraceRequest
from sapwood.sim.traffic import with_traffic
from sapwood.sim.what_ifs import Shift, WhatIf, sensitivity, what_ifs
from sapwood.sim.whole_rates import WholeRates
from sapwood.sim.whole_refusals import WholeRefusals
from sapwood.sim.window import Window, busiest
from sapwood.sim.worth import Rent, cost_per_million, steps

__all__ = [
    "FORMULA",
    "KNOWN_MODELS",
    "TEXT",
    "TRIED_PAGES",
    "TRIED_ROUTINGS",
    "Case",
    "CostModel",
    "CurvePoint",
    "Definition",
    "Demand",
    "Design",
    "EngineSpec",
    "Figure",
    "FlopCost",
    "Goals",
    "Hardware",
    "Judge",
    "LruStack",
    "ModelShape",
    "Outcome",
    "Plan",
    "Planner",
    "Progress",
    "Rate",
    "Rent",
    "RooflineCost",
    "Row",
    "Run",
    "Segments",
    "Setup",
    "Shift",
    "Shortfall",
    "SimulatingJudge",
    "Source",
    "Space",
    "StepShape",
    "Tokenize",
    "Trace",
    "TraceRequest",
    "WhatIf",
    "WholeRates",
    "WholeRefusals",
    "Window",
    "beyond_context",
    "busiest",
    "capacities_up_to",
    "cost_from",
    "cost_per_million",
    "curves",
    "hardware_named",
    "header_of",
    "in_pages",
    "keeping_up",
    "knees",
    "read_trace",
    "sensitivity",
    "shape_named",
    "simulate",
    "spanning",
    "steps",
    "text_bytes",
    "unbounded_rates",
    "what_ifs",
    "with_replies",
    "with_traffic",
    "without_names",
]
