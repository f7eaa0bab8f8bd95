"""The default model against transformers on the same GGUF file: logits of all positions, and greedy text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from exact.judge import Judge, distance
from exact.lab import Ask, Setting, Truth, all_logits
from model.tiny import default_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from exact.lab import GetDecoder
    from sapwood.chat.tokenizer import Tokenizer
    from sapwood.config import KvDtype

NEAR_TIE = 1e-3
"""Where transformers' own two best logits lie closer than this, either is right."""

LONG_PROMPT = (
    "The lighthouse keeper counted the ships each evening, wrote their names into a ledger, and compared them with "
    "the list that the harbour master had sent in the morning. On the day of the storm two names were missing, and "
    "before it was dark he had rowed out alone; what he found was\n\n1. "
)
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "The three primary colours are",
    "Dear Sir or Madam,\n\nI am writing to",
    "import numpy as np\n\nx = np.",
    "Q: What is 12 times 12?\nA:",
    "In 1969, humans first",
    "The quick brown fox",
    "Photosynthesis is the process by which",
    "1, 2, 3, 5, 8, 13,",
    "<h1>Welcome</h1>\n<p>",
    "SELECT name, age FROM users WHERE",
    "La Tour Eiffel est située",
    "To make a good cup of tea, first",
    "The opposite of hot is",
    "A haiku about rain:\n",
    "My favourite animal is the otter, because",
)
CHAT = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge.of_llama_gguf(default_model(), layers=30)


@pytest.fixture(scope="module")
def long_prompt(default_tokenizer: Tokenizer) -> list[int]:
    prompt = default_tokenizer.encode(LONG_PROMPT)
    assert len(prompt) >= 60
    return prompt


@pytest.fixture(scope="module")
def theirs(judge: Judge, long_prompt: list[int]) -> NDArray[np.float32]:
    return judge.logits(long_prompt)[0]


def test_logits_of_all_positions(
    theirs: NDArray[np.float32], long_prompt: list[int], default_decoder: GetDecoder
) -> None:
    ours = all_logits(default_decoder(compute="f32"), long_prompt)
    assert distance(ours, theirs) < 2e-5
    assert (ours.argmax(1) == theirs.argmax(1)).all()


def test_logits_of_rows_rounded_to_sixteen_bits(
    theirs: NDArray[np.float32], long_prompt: list[int], default_decoder: GetDecoder
) -> None:
    """Not float32's distance: every row of every product is rounded to 2^-15 of its largest value."""
    ours = all_logits(default_decoder(), long_prompt)
    assert 2e-5 < distance(ours, theirs) < 5e-3


@pytest.mark.parametrize(("dtype", "limit"), [("f16", 5e-3), ("bf16", 5e-2), ("q8", 1e-1)])
def test_rounded_pages_stay_near(
    dtype: KvDtype,
    limit: float,
    theirs: NDArray[np.float32],
    long_prompt: list[int],
    default_decoder: GetDecoder,
) -> None:
    assert distance(all_logits(default_decoder(compute="f32"), long_prompt, dtype), theirs) < limit


def test_greedy_text(
    judge: Judge,
    default_tokenizer: Tokenizer,
    default_decoder: GetDecoder,
    record_property: Callable[[str, object], None],
) -> None:
    """24 tokens for each of 20 prompts are transformers' own greedy tokens.

    Transformers reads prompt and our answer in one go. While each of our tokens is its likeliest next one, ours is
    by induction the text that it would write itself. The rule for ties: a token may differ only where transformers
    gives it a logit within NEAR_TIE of its best.
    """
    prompts = [default_tokenizer.encode(text) for text in PROMPTS] + [
        default_tokenizer.encode(CHAT, special=True)
    ]
    assert len(prompts) == 20
    asks = [Ask(tuple(prompt)).wanting(24) for prompt in prompts]
    said = Truth(default_decoder(compute="f32"), "f32").lab(Setting(running=20, pool=2048)).run(*asks)
    answers = [list(s.tokens[0]) for s in said]
    plainly_equal = 0
    rows_of = judge.logits(*(p + a[:-1] for p, a in zip(prompts, answers, strict=True)))
    for prompt, answer, rows in zip(prompts, answers, rows_of, strict=True):
        rows = rows[len(prompt) - 1 :]
        behind = rows.max(1) - rows[range(24), answer]
        assert behind.max() < NEAR_TIE, default_tokenizer.decode(prompt)
        plainly_equal += bool(behind.max() == 0)
    record_property("plainly_equal", plainly_equal)
    print(f"{plainly_equal} of 20 greedy texts are equal without the rule for ties")
    assert plainly_equal >= 18
    assert judge.greedy(prompts[0], 6) == answers[0][:6]
