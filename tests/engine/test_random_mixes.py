"""Random traffic against the definition: whatever is mixed, each answer is the solo answer and nothing leaks."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import VOCAB, Rig, prompt_of
from sapwood.config import OrderName
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

    @property
    def prompt(self) -> tuple[int, ...]:
        return prompt_of(self.trunk) + self.tail


params = st.builds(
    SamplingParams,
    max_tokens=st.integers(0, 20),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
    n=st.sampled_from([1, 1, 1, 2, 3]),
    stop=st.sampled_from([(), ("ab", "c"), ("é", "xyx")]),
    stop_token_ids=st.sampled_from([(), (3, 4)]),
    logprobs=st.sampled_from([None, 0, 2]),
    prompt_logprobs=st.sampled_from([None, None, None, 1]),
    ignore_eos=st.booleans(),
)
asks = st.builds(
    Ask,
    trunk=st.integers(0, 50),
    tail=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20).map(tuple),
    params=params,
    tenant=st.sampled_from(["", "", "b"]),
    reuse=st.sampled_from([True, True, True, False]),
)
# What happens between steps: a request arrives, one is aborted, a flush, or steps.
actions = st.lists(
    st.one_of(asks, asks, asks, st.integers(0, 30), st.sampled_from(["flush", "step", "step", "steps"])),
    min_size=8,
    max_size=40,
)


@given(
    actions=actions,
    chunk=st.sampled_from([1, 7, 16, 64]),
    page_size=st.sampled_from([1, 4, 16]),
    max_running=st.sampled_from([1, 3, 8]),
    policy=st.sampled_from(["fcfs", "lpm"]),
    faulty_step=st.integers(1, 60),
    faults=st.sampled_from(["none", "none", "raise", "sequence"]),
)
@settings(max_examples=80, deadline=None)
def test_every_answer_is_the_solo_answer(
    actions: list[Ask | int | str],
    chunk: int,
    page_size: int,
    max_running: int,
    policy: OrderName,
    faulty_step: int,
    faults: str,
) -> None:
    def hook(plan: StepPlan) -> frozenset[SeqId]:
        if plan.step != faulty_step or faults == "none":
            return frozenset()
        if faults == "raise":
            raise RuntimeError("told to")
        return frozenset({plan.works[-1].seq})

    rig = Rig(
        POOL, page_size=page_size, chunk=chunk, max_running=max_running, policy=policy, eos=(0,), hook=hook
    )
    aborted: set[str] = set()
    for action in actions:
        if isinstance(action, Ask):
            rig.add(action.prompt, action.params, scope=Scope(tenant=action.tenant), reuse=action.reuse)
        elif isinstance(action, int):
            if (name := f"r{action}") in rig.engine.request_ids:
                aborted.add(name)
                rig.abort(rig.logs[name])
        elif action == "flush":
            rig.engine.flush()
        else:
            for _ in range(1 if action == "step" else 9):
                rig.step()
    rig.run()
    failed = 0
    for name, log in rig.logs.items():
        assert log.finished is not None
        if log.finished.error is not None:
            failed += 1
            assert "told to" in log.finished.error
        elif name not in aborted:
            rig.expect_solo(log)
            if log.request.params.prompt_logprobs is not None:
                assert log.scored == (None, *rig.runner.score(log.request.prompt, 1))
    assert failed <= (0 if faults == "none" else 1 if faults == "sequence" else max_running)
    rig.expect_no_leaks()
