"""Random traffic on random engines: every row and every answer is the truth's. And that this lab would notice."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.lab import FAMILIES, OTHER_FAMILIES, Ask, Setting, Truth, prompt_of
from exact.test_steps import NEIGHBOURS

if TYPE_CHECKING:
    from exact.lab import GetDecoder
    from sapwood.model.decoder import Decoder

SETTINGS = st.builds(
    Setting,
    page_size=st.sampled_from([1, 2, 16]),
    chunk=st.sampled_from([5, 33, 64, 512]),
    running=st.integers(1, 16),
    pool=st.sampled_from([320, 480, 2048]),
    index=st.sampled_from(["radix", "radix", "blocks", "blocks", "none"]),
    policy=st.sampled_from(["fcfs", "lpm", "default"]),
)
WAVES = st.lists(st.lists(st.sampled_from(NEIGHBOURS), min_size=1, max_size=6), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def truths(tiny_decoder: GetDecoder) -> Any:
    """One truth per family, that remembers the answers from example to example."""
    return cache(lambda family: Truth(tiny_decoder(family)))


@pytest.mark.parametrize("family", FAMILIES + OTHER_FAMILIES)
@settings(max_examples=25)
@given(setting=SETTINGS, waves=WAVES)
def test_any_traffic_on_any_engine(
    family: str, truths: Any, setting: Setting, waves: list[list[Ask]]
) -> None:
    lab = truths(family).lab(setting)
    for wave in waves:
        lab.say(*wave)


class Leaky:
    """A decoder with a flaw: its rows depend, in the last bit, on how many rows the step has."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.spec, self.logits, self.ops = decoder.spec, decoder.logits, decoder.ops

    def forward(self, tokens: Any, spans: Any, kv: Any) -> Any:
        hidden = self._decoder.forward(tokens, spans, kv)
        return np.nextafter(hidden, np.float32(np.inf)) if len(tokens) % 2 else hidden


def test_a_model_that_leaks_one_bit_is_caught(tiny_decoder: GetDecoder) -> None:
    leaky = cast("Decoder", Leaky(tiny_decoder("llama")))
    truth = Truth(leaky)
    truth.lab().say(Ask(prompt_of(100)))
    with pytest.raises(AssertionError, match=r"the hidden at position .* have other bits"):
        truth.lab(Setting(chunk=33)).say(Ask(prompt_of(100)))


def test_pages_of_another_prompt_are_caught(tiny_decoder: GetDecoder) -> None:
    truth = Truth(tiny_decoder("llama"))
    lab = truth.lab()
    ask = Ask(prompt_of(100))
    lab.say(ask)
    lab.runner.kv.k[:, :, 0] *= 1.001
    with pytest.raises(AssertionError, match="other bits"):
        lab.say(ask)
