"""The ledgers of a server: whose numbers are shown, by which clock and which minimum."""

from __future__ import annotations

import threading

import pytest

from sapwood.config import LedgerName, ServerConfig
from sapwood.contract import Block, imprint
from sapwood.server.ledgers import Dialect, Ledgers

PROMPT = list(range(700))
MARKED = [Block(600, "messages", 300.0)]


@pytest.mark.parametrize(
    ("name", "contracts"),
    [("auto", ["anthropic", "gemini"]), ("contract", ["openai", "anthropic", "gemini"]), ("physical", [])],
)
def test_which_dialects_show_their_contract(name: LedgerName, contracts: list[Dialect]) -> None:
    ledgers = Ledgers(ServerConfig(ledger=name), page_size=1)
    assert [dialect for dialect, ledger in ledgers.names().items() if ledger == "contract"] == contracts


@pytest.mark.parametrize(("minimum", "cached"), [(600, 600), (601, 0)])
def test_the_minimum_is_the_configs(minimum: int, cached: int) -> None:
    ledgers = Ledgers(ServerConfig(anthropic_minimum=minimum), page_size=1)
    for read in (0, cached):
        plan = ledgers.anthropic.plan("ns", PROMPT, MARKED, {})
        assert ledgers.anthropic.settle(plan, 699).read == read


def test_promises_live_by_the_given_clock() -> None:
    times = iter([0.0, 0.0, 1.0, 299.0, 299.0, 599.0, 599.0])
    ledgers = Ledgers(ServerConfig(anthropic_minimum=1), page_size=1, clock=lambda: next(times))
    for read in (0, 600, 0):
        plan = ledgers.anthropic.plan("ns", PROMPT, MARKED, {})
        assert ledgers.anthropic.settle(plan, 699).read == read


def test_the_page_size_is_the_pools() -> None:
    ledgers = Ledgers(ServerConfig(anthropic_minimum=1), page_size=256)
    for read in (0, 512):
        plan = ledgers.anthropic.plan("ns", PROMPT, MARKED, {})
        assert ledgers.anthropic.settle(plan, 512).read == read


def test_many_threads_lose_nothing() -> None:
    ledgers = Ledgers(ServerConfig(), page_size=1)

    def ask(first: int) -> None:
        for i in range(30):
            tokens = [first * 1000 + i] * 1500
            ledgers.openai.settle(ledgers.openai.plan("ns", tokens, (), {}), 0)
            seen = imprint(tokens, (), {}, {"model": "toy"})
            ledgers.diagnoses.note("ns", f"{first}-{i}", seen, 1408)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for first in range(4):
        for i in range(30):
            tokens = [first * 1000 + i] * 1500
            plan = ledgers.openai.plan("ns", tokens, (), {})
            assert ledgers.openai.settle(plan, 1499).read == 1408
            seen = imprint(tokens, (), {}, {"model": "toy"})
            assert ledgers.diagnoses.compare("ns", f"{first}-{i}", seen, 1408) is None
