"""Random traffic against the definition: whatever is mixed, answers are solo answers and nothing leaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prophet import Prophet
from engine.rig import VOCAB, Rig, prompt_of
from sapwood.config import IndexName, OrderName
from sapwood.plan import StepPlan
from sapwood.types import SamplingParams, Scope, SeqId

POOL = 96


@dataclass(frozen=True)
class Ask:
    trunk: int
    tail: tuple[int, ...]
    params: SamplingParams
    tenant: str
    reuse: bool
    priority: int

    @property
    def prompt(self) -> tuple[int, ...]:
        return prompt_of(self.trunk) + self.tail


params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 20),
    best_of=st.sampled_from([None, None, None, 3, 5]),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
    n=st.sampled_from([1, 1, 1, 2, 3]),
    stop=st.sampled_from([(), ("ab", "c"), ("é", "xyx")]),
    stop_token_ids=st.sampled_from([(), (3, 4)]),
    logprobs=st.sampled_from([None, 0, 2]),
    prompt_logprobs=st.sampled_from([None, None, 0, 1, 1, 3]),
    prompt_logprobs_start=st.sampled_from([0, 0, 0, 1, 5, 40]),
    ignore_eos=st.booleans(),
)
asks = st.builds(
    Ask,
    trunk=st.integers(0, 50),
    tail=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20).map(tuple),
    params=params,
    tenant=st.sampled_from(["", "", "b"]),
    reuse=st.sampled_from([True, True, True, False]),
    priority=st.integers(0, 2),
)
# What happens between steps: a request arrives, one is aborted, a flush, or steps.
actions = st.lists(
    st.one_of(asks, asks, asks, st.integers(0, 30), st.sampled_from(["flush", "step", "step", "steps"])),
    min_size=8,
    max_size=40,
)


@dataclass(frozen=True)
class Faults:
    kind: str
    step: int

    def __call__(self, plan: StepPlan) -> frozenset[SeqId]:
        if plan.step != self.step or self.kind == "none":
            return frozenset()
        if self.kind == "raise":
            raise RuntimeError("told to")
        return frozenset({plan.works[-1].seq})


def act(rig: Rig, action: Ask | int | str) -> str | None:
    """Do what happens between steps; names the request that was aborted, if one was."""
    match action:
        case Ask():
            priority = action.priority if rig.engine.limits.priorities else 0
            scope = Scope(tenant=action.tenant)
            start = min(action.params.prompt_logprobs_start, len(action.prompt))
            params = replace(action.params, prompt_logprobs_start=start)
            rig.add(action.prompt, params, scope=scope, reuse=action.reuse, priority=priority)
        case int():
            name = f"r{action}"
            if name in rig.logs and rig.logs[name].finished is None:
                rig.abort(rig.logs[name])
                return name
        case "flush":
            rig.engine.flush()
        case _:
            for _ in range(1 if action == "step" else 9):
                rig.step()
    return None


@given(
    actions=actions,
    chunk=st.sampled_from([1, 7, 16, 64]),
    page_size=st.sampled_from([1, 4, 16]),
    max_running=st.sampled_from([1, 3, 8]),
    policy=st.sampled_from(["fcfs", "lpm", "default", "dfs-weight", "priority", "random"]),
    faulty_step=st.integers(1, 60),
    faults=st.sampled_from(["none", "none", "raise", "sequence"]),
    index=st.sampled_from(["radix", "radix", "blocks", "none"]),
    guessing=st.sampled_from(["off", "auto", "prophet", "prophet"]),
)
@settings(max_examples=100)
def test_every_answer_is_the_solo_answer(
    actions: list[Ask | int | str],
    chunk: int,
    page_size: int,
    max_running: int,
    policy: OrderName,
    faulty_step: int,
    faults: str,
    index: IndexName,
    guessing: str,
) -> None:
    rig = Rig(
        POOL,
        page_size=page_size,
        chunk=chunk,
        max_running=max_running,
        policy=policy,
        eos=(0,),
        hook=Faults(faults, faulty_step),
        index=index,
        speculate="off" if guessing == "off" else "auto",
    )
    if guessing == "prophet":
        Prophet.take_over(rig)
    aborted = {name for action in actions if (name := act(rig, action)) is not None}
    rig.run()
    failed = [log for log in rig.logs.values() if log.finished is None or log.finished.error is not None]
    assert all(log.finished is not None and "told to" in str(log.finished.error) for log in failed)
    assert len(failed) <= {"none": 0, "sequence": 1, "raise": max_running}[faults]
    for name, log in rig.logs.items():
        if log not in failed and name not in aborted:
            rig.expect_solo(log)
            assert log.scored == rig.scores(log.request)
    rig.expect_no_leaks()
