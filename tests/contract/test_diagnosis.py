"""Why a request read less than an earlier one had left."""

from __future__ import annotations

import pytest

from contract.prompts import Piece, Prompt, prompt
from sapwood.contract import Diagnoses, Finding, Imprint, imprint

MODEL = {"model": "toy"}


def conversation(*said: str, tools: str = "tools", system: str = "system") -> Prompt:
    return prompt(
        [Piece(tools, 1100, "tools"), Piece(system, 1200, "system"), *(Piece(name, 100) for name in said)]
    )


def seen(wanted: Prompt, settings: dict[str, str] | None = None, model: str = "toy") -> Imprint:
    return imprint(wanted.tokens, wanted.blocks, settings or {}, {"model": model})


@pytest.fixture
def diagnoses() -> Diagnoses:
    """One request of ours is remembered, which left 2500 tokens."""
    diagnoses = Diagnoses()
    diagnoses.note("ours", "msg_1", seen(conversation("a", "b")), 2500)
    return diagnoses


def test_a_request_that_goes_on_and_reads_it_all_has_no_finding(diagnoses: Diagnoses) -> None:
    assert diagnoses.compare("ours", "msg_1", seen(conversation("a", "b", "c")), 2500) is None


@pytest.mark.parametrize(
    ("later", "read", "changed"),
    [
        (seen(conversation("a", "b"), model="other"), 0, "model"),
        (seen(conversation("a", "b", tools="other", system="too")), 0, "tools"),
        (seen(conversation("a", "b"), {"tools": "x"}), 0, "tools"),
        (seen(conversation("a", "b", system="other")), 1100, "system"),
        (seen(conversation("a", "b"), {"system": "x"}), 1100, "system"),
        (seen(conversation("a", "x", "c")), 2300, "messages"),
        (seen(conversation("a", "b", "c"), {"messages": "x"}), 2300, "messages"),
        (seen(conversation("a")), 2300, "messages"),
        (seen(conversation("a", "b", "c")), 0, None),
    ],
)
def test_the_first_thing_that_changed_is_named_with_what_it_cost(
    diagnoses: Diagnoses, later: Imprint, read: int, changed: str | None
) -> None:
    assert diagnoses.compare("ours", "msg_1", later, read) == Finding(changed, 2500, 2500 - read)


@pytest.mark.parametrize(("tenant", "id"), [("ours", "msg_2"), ("theirs", "msg_1")])
def test_an_unknown_request_and_another_tenants_are_not_found(
    diagnoses: Diagnoses, tenant: str, id: str
) -> None:
    with pytest.raises(KeyError):
        diagnoses.compare(tenant, id, seen(conversation("a")), 0)


def test_the_latest_of_each_tenant_are_remembered() -> None:
    diagnoses = Diagnoses(most=2, tenants=2)
    for tenant in ("t1", "t2", "t3"):
        for id in ("m1", "m2", "m3"):
            diagnoses.note(tenant, id, seen(conversation("a")), 0)
    known = [(t, m) for t in ("t1", "t2", "t3") for m in ("m1", "m2", "m3") if diagnoses.knows(t, m)]
    assert known == [("t2", "m2"), ("t2", "m3"), ("t3", "m2"), ("t3", "m3")]


def test_what_is_noted_again_is_forgotten_later() -> None:
    diagnoses = Diagnoses(most=2, tenants=2)
    for tenant in ("t1", "t2", "t1", "t3"):
        diagnoses.note(tenant, "m", seen(conversation("a")), 0)
    assert [diagnoses.knows(tenant, "m") for tenant in ("t1", "t2", "t3")] == [True, False, True]
    for id in ("m1", "m2", "m1", "m3"):
        diagnoses.note("t1", id, seen(conversation("a")), 0)
    assert [diagnoses.knows("t1", id) for id in ("m1", "m2", "m3")] == [True, False, True]
