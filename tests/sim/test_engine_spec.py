"""What is simulated of a design: what it chooses, and what it leaves to the engine."""

from __future__ import annotations

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.sim import Case, Design
from sapwood.sim.engine_spec import EngineSpec, Faster
from sim.test_judge import TokenCost

ENGINE = EngineSpec(
    TokenCost(), CacheConfig(attention_tokens=7), SchedulerConfig(chunk_tokens=99, speculate="off"), 4096
)
DESIGN = Design(640, 2, 16, "radix", "slru", "lpm", "session")


def test_a_design_decides_and_the_engine_has_the_rest() -> None:
    setup = ENGINE.setup(Case(DESIGN))
    assert setup.cache == CacheConfig(16, "radix", "slru", attention_tokens=7)
    assert setup.scheduler == SchedulerConfig(99, schedule_policy="lpm", speculate="off")
    assert (setup.capacity_tokens, setup.replicas, setup.context) == (640, 2, 4096)
    assert setup.router is not None
    assert ENGINE.setup(Case(Design(640))).router is None


def test_twice_the_speed_is_half_the_time() -> None:
    assert ENGINE.at(1.0) is ENGINE
    assert ENGINE.at(2.0).cost.prefill_seconds(100, 50) == 0.025
    assert Faster(TokenCost(), 1.2).name == "1 ms per token, 1.2 times as fast"
