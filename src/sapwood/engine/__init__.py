"""From requests to events: the loop that schedules, runs and applies steps."""

from __future__ import annotations

from sapwood.engine.answer import Detok, Detokenizer
from sapwood.engine.build import Built, BuiltFacts, build_engine, load_tokenizer
from sapwood.engine.capture import Capture
from sapwood.engine.engine import Engine
from sapwood.engine.limits import Limits, ModelFacts
from sapwood.engine.line_file import LineFile
from sapwood.engine.loop import EngineLoop
from sapwood.engine.pinning import PinReport
from sapwood.engine.pins import Pin
from sapwood.engine.stats import EngineStats, HistogramSnapshot, PageCounts, TenantCounts

__all__ = [
    "Built",
    "BuiltFacts",
    "Capture",
    "Detok",
    "Detokenizer",
    "Engine",
    "EngineLoop",
    "EngineStats",
    "HistogramSnapshot",
    "Limits",
    "LineFile",
    "ModelFacts",
    "PageCounts",
    "Pin",
    "PinReport",
    "TenantCounts",
    "build_engine",
    "load_tokenizer",
]
