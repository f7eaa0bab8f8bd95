"""The exactness suite on the default model, thinner: the same promises at its real sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from exact.lab import BOTH_INDEXES, Ask, Said, Setting, Truth, prompt_of
from sapwood.chat.detok import Detokenizer
from sapwood.types import SamplingParams

if TYPE_CHECKING:
    from exact.lab import GetDecoder
    from sapwood.chat.tokenizer import Tokenizer
    from sapwood.config import IndexName, KvDtype, SpeculateName

VOCAB = 49152
PROMPT = prompt_of(200, vocab=VOCAB)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, logprobs=3)

TRUNKS = (
    "You are a patient teacher. Answer in one short sentence that a child of eight understands, and never use a word "
    "that you would have to explain.\n\nQuestion: ",
    "# Notes of the gardening club\n\nThe soil in the north bed is heavy clay; roses do well there, lavender does not. "
    "Water early in the day.\n\nIn short: ",
    "import math\n\n\ndef area(radius: float) -> float:\n    return math.pi * radius**2\n\n\ndef ",
    "The train from the coast arrives at noon, and the ferry leaves an hour later from the pier behind the station. ",
)
TAILS = (
    "Why",
    "What is a",
    "The",
    "It",
    "How do",
    "When the",
    "3",
    "Who",
    "Tomorrow",
    "If we take the first",
)


@pytest.fixture(scope="module")
def truth(default_decoder: GetDecoder) -> Truth:
    """Its answers are remembered from test to test."""
    return Truth(default_decoder())


def test_forty_prompts_cold_warm_and_eight_at_once(
    default_decoder: GetDecoder, default_tokenizer: Tokenizer
) -> None:
    """The same tokens, text and logprobs, and the same bits of every row on the way, whatever the index."""
    prompts = [default_tokenizer.encode(trunk + tail) for tail in TAILS for trunk in TRUNKS]
    asks = [Ask(tuple(prompt), GREEDY) for prompt in prompts]
    truth = Truth(default_decoder(), detokenizer=lambda context: Detokenizer(default_tokenizer, context))
    lab = truth.lab()
    cold: list[Said] = []
    for ask in asks:
        lab.engine.flush()
        cold += lab.run(ask)
        assert lab.reused == [0]
    rows = truth.witness.new

    for setting in BOTH_INDEXES:
        lab = truth.lab(replace(setting, running=8, pool=4096))
        together = lab.run(*asks)
        assert max(lab.runner.widths) == 8
        assert sum(lab.reused) > 500
        assert together == cold

        warm: list[Said] = []
        for ask in asks:
            warm += lab.run(ask)
            assert lab.reused == [setting.whole(len(ask.prompt) - 1)]
        assert warm == cold
    assert truth.witness.new == rows


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 150, 198])
def test_partial_hits(truth: Truth, setting: Setting, length: int) -> None:
    lab = truth.lab(setting)
    lab.prime(PROMPT[:length])
    assert lab.say(Ask(PROMPT)) == [setting.whole(length)]


@pytest.mark.parametrize("chunk", [7, 64])
def test_chunks_and_threads(truth: Truth, setting: Setting, chunk: int, default_decoder: GetDecoder) -> None:
    truth.lab(replace(setting, chunk=chunk), default_decoder(threads=1)).say(Ask(PROMPT))


@pytest.mark.parametrize("index", ["radix", "blocks"])
def test_pages_of_sixteen_and_generated_tokens(truth: Truth, index: IndexName) -> None:
    lab = truth.lab(Setting(page_size=16, index=index))
    (said,) = lab.run(Ask(PROMPT[:90]).wanting(25))
    assert lab.say(Ask(PROMPT[:90] + said.tokens[0] + PROMPT[90:100])) == [112]


def test_eviction_and_preemption(truth: Truth, setting: Setting) -> None:
    """Without guesses, so that all three run until the pages end, and with."""
    modes: tuple[SpeculateName, ...] = ("auto", "off")
    for speculate in modes:
        lab = truth.lab(replace(setting, pool=270, chunk=64, speculate=speculate))
        lab.say(*(Ask(prompt_of(70, salt, VOCAB)).wanting(30) for salt in range(3)))
    stats = lab.engine.stats()
    assert stats.preemptions > 0
    assert stats.evicted_tokens > 0


@pytest.mark.parametrize("dtype", ["bf16", "f32", "q8"])
def test_other_types_of_pages(dtype: KvDtype, setting: Setting, default_decoder: GetDecoder) -> None:
    truth = Truth(default_decoder(), dtype)
    lab = truth.lab(replace(setting, chunk=48))
    lab.say(Ask(PROMPT[:100]), Ask((*PROMPT[:80], 5, 6)))
    assert lab.say(Ask(PROMPT[:100])) == [setting.whole(99)]


@pytest.mark.parametrize("setting", BOTH_INDEXES, ids=str)
def test_answers_given_before_come_in_less_than_half_of_the_steps(truth: Truth, setting: Setting) -> None:
    """Greedy and drawn, alone and four at once; each row that was drawn from has the bits of the truth."""
    lab = truth.lab(setting)
    drawn = SamplingParams(max_tokens=48, temperature=0.8, top_p=0.95, seed=11, logprobs=1)
    asks = [Ask(PROMPT[:50], GREEDY).wanting(48), Ask(PROMPT[:50], drawn), Ask(PROMPT[:60], drawn)]
    for each in ([asks[0]], [asks[1]], [*asks, Ask(PROMPT[:70], GREEDY).wanting(48)]):
        lab.say(*each)
        before = len(lab.runner.widths)
        lab.say(*each)
        assert len(lab.runner.widths) - before < 48 / 2
    stats = lab.engine.stats()
    assert stats.guessed_right_tokens > 100
