"""Values of the flags of `sapwood plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sapwood.cli import plan_ask as asked
from sapwood.cli.plan_ask import ROUTINGS, Amount, Ask, Budget
from sapwood.config import EvictionName
from sapwood.errors import UsageError
from sapwood.routing import RouterName
from sapwood.sim import FlopCost, hardware_named, shape_named, spanning


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1000", Amount(1000)),
        ("100k", Amount(100_000)),
        ("1.5M", Amount(1_500_000)),
        ("16GB", Amount(16e9, bytes=True)),
        ("512MiB", Amount(512 * 2**20, bytes=True)),
    ],
)
def test_memory_is_in_tokens_or_in_bytes(text: str, amount: Amount) -> None:
    assert asked.amounts("--capacity")(f"{text},{text}") == (amount, amount)


def test_bytes_become_tokens_of_the_model() -> None:
    assert Amount(1e9, bytes=True).tokens(131_072) == 7629
    assert Amount(1000).tokens(131_072) == 1000


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("20", Budget(price_per_hour=20.0)),
        ("2.5/h", Budget(price_per_hour=2.5)),
        ("320GB", Budget(memory=Amount(320e9, bytes=True))),
    ],
)
def test_a_budget_is_money_or_memory(text: str, budget: Budget) -> None:
    assert asked.budget_of("--budget")(text) == budget


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (asked.share, "0.8", 0.8),
        (asked.share, "80%", 0.8),
        (asked.duration, "500ms", 0.5),
        (asked.duration, "10m", 600.0),
        (asked.timed_of, "all", asked.ALL),
        (asked.timed_of, "0", 0),
        (asked.policies_of, "lru,default,lru", ("lru", "default")),
        (asked.policies_of, "all", get_args(EvictionName)),
    ],
)
def test_values(read: Callable[[str], Callable[[Any], Any]], text: str, value: object) -> None:
    assert read("--flag")(text) == value


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (asked.amounts, "12z", "must be tokens, such as 100k"),
        (asked.amounts, "0", "at least 1"),
        (asked.amounts, "", "must be tokens"),
        (asked.amounts, "64G", r"is '64G': of what\? It must be tokens"),
        (asked.amounts, "100m", "of what"),
        (asked.amounts, "99999999TB", "more than there is anywhere"),
        (asked.amounts, "999999999999999M", "more than there is anywhere"),
        (asked.amounts, "1,000", r"is '1,000'; a comma goes between .*\n\nhint: for one size write 1000$"),
        (asked.budget_of, "5x", "is '5x'; it must be money per hour, such as 20, or memory"),
        (asked.budget_of, "100k", r"is '100k': of what\? It must be money per hour"),
        (asked.budget_of, "64G", "of what"),
        (asked.share, "80", "between 0 and 1"),
        (asked.share, "nan", "between 0 and 1"),
        (asked.share, "most", "between 0 and 1"),
        (asked.duration, "soon", "--flag: 'soon' is not a duration"),
        (asked.timed_of, "some", "whole number"),
        (asked.policies_of, "lru,lri", "must be one of"),
    ],
)
def test_what_is_wrong_is_told(read: Callable[[str], Callable[[Any], Any]], text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read("--flag")(text)


def test_who_leaves_the_bytes_out_is_shown_them() -> None:
    with pytest.raises(UsageError) as caught:
        asked.budget_of("--budget")("64G")
    assert caught.value.hint == "if you mean bytes, write 64GB"


def test_the_routers_are_those_of_the_room() -> None:
    assert get_args(RouterName) == ROUTINGS


def ask_for(model: str) -> Ask:
    shape, hardware = shape_named(model), hardware_named("h100")
    return Ask(Path("x"), shape, hardware, FlopCost(shape, hardware))


def test_kv_has_the_room_that_weights_leave() -> None:
    ask = ask_for("llama-3-8b")
    assert ask.kv_bytes == 131_072
    assert ask.most_tokens == int((0.9 * 80e9 - 2 * 8_030_261_248) / 131_072)
    with pytest.raises(UsageError, match="141 GB; h100 has 80 GB, of which weights and KV may take 72"):
        _ = ask_for("llama-3-70b").most_tokens


def test_devices_have_room_together_for_weights_and_kv() -> None:
    ask = ask_for("llama-3-70b")
    two = replace(ask, hardware=spanning(replace(ask.hardware, memory_utilization=1.0), 2))
    assert two.most_tokens == int((160e9 - ask.model.bytes_of_weights) / ask.kv_bytes)
