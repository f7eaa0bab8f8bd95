"""The ledger against a slow twin, over random conversations on a random clock."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.prompts import Piece, prompt
from contract.twin import Twin
from sapwood.contract import LEVELS, OPENAI, OPENAI_BREAKPOINTS, Ledger, Markers

FIVE, HOUR = 300.0, 3600.0
PROFILE = Markers(minimum=40, lookback=3)


@dataclass(frozen=True)
class Step:
    """One request: how long after the one before, of whom, with what; then what was there, and how late it began."""

    after: float
    namespace: str
    settings: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    marks: tuple[int, ...]
    hour_marks: int
    there: float
    waited: float


STEPS = st.builds(
    Step,
    after=st.sampled_from([0.0, 1.0, 150.0, 200.0, 200.0, 299.0, 300.0, 1800.0, 3600.0]),
    namespace=st.sampled_from(["ours"] * 6 + ["theirs"]),
    settings=st.sampled_from([()] * 6 + [((level, "x"),) for level in LEVELS]),
    # Nearly always the same conversation, more or less of it.
    names=st.builds(
        lambda length, other, at: ("a",) * min(length, at) + (other,) + ("a",) * max(0, length - at),
        st.integers(1, 6),
        st.sampled_from("aaaaaab"),
        st.integers(0, 6),
    ),
    marks=st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True).map(lambda m: tuple(sorted(m))),
    hour_marks=st.sampled_from([0, 0, 1, 2]),
    there=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.0, 1.0]),
    waited=st.sampled_from([0.0, 0.0, 5.0, 200.0]),
)


def pieces(step: Step) -> list[Piece]:
    """The first is a tool, the second a system text; the first markers are for an hour."""
    ttls = {mark: HOUR if n < step.hour_marks else FIVE for n, mark in enumerate(step.marks)}
    return [
        Piece(f"{name}{min(i, 2)}", 20 + 5 * i, LEVELS[min(i, 2)], ttls.get(i))
        for i, name in enumerate(step.names)
    ]


@given(st.lists(STEPS, max_size=25), st.integers(1, 3))
@settings(max_examples=300)
def test_billing_is_the_twins_and_adds_up(steps: list[Step], together: int) -> None:
    """`together` requests are planned before the first of them is settled."""
    ledger, twin = Ledger(PROFILE), Twin(PROFILE)
    now = 0.0
    for at in range(0, len(steps), together):
        group = []
        for step in steps[at : at + together]:
            now += step.after
            made, told = prompt(pieces(step)), dict(step.settings)
            group.append(
                (
                    step,
                    ledger.plan(step.namespace, made.tokens, made.blocks, told, now),
                    twin.plan(step.namespace, made.tokens, made.blocks, told, now),
                )
            )
        for step, plan, twins in group:
            now += step.waited
            reused = int(step.there * (plan.length - 1))
            billing = ledger.settle(plan, reused, now)
            assert billing == twin.settle(twins, reused, now)
            assert billing.read <= reused
            assert billing.read + billing.written_tokens + billing.plain == plan.length
            assert min(billing.read, billing.plain) >= 0


@given(st.lists(STEPS, max_size=12), st.sampled_from([1, 16, 100]))
@settings(max_examples=150)
def test_no_rules_bill_more_than_was_there(steps: list[Step], page_size: int) -> None:
    for profile in (OPENAI, OPENAI_BREAKPOINTS, PROFILE):
        ledger, now = Ledger(profile, page_size=page_size), 0.0
        for step in steps:
            now += step.after
            made = prompt([Piece(p.name, 20 * p.tokens, p.level, p.ttl) for p in pieces(step)])
            plan = ledger.plan(step.namespace, made.tokens, made.blocks, dict(step.settings), now)
            reused = int(step.there * (plan.length - 1)) // page_size * page_size
            billing = ledger.settle(plan, reused, now)
            assert billing.read <= reused
            assert billing.read + billing.written_tokens + billing.plain == plan.length
            assert billing.read == 0 or billing.read >= profile.minimum
            if profile is OPENAI:
                assert billing.read % 128 == 0
