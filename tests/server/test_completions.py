"""`/v1/completions` through the official SDK, over a real socket."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from server.conftest import Served


def complete(served: Served, prompt: Any, **options: Any) -> Any:
    return served.openai.completions.create(model="toy", prompt=prompt, **options)


def test_text_and_its_tokens_are_one_prompt(served: Served) -> None:
    served.script(b" blue")
    text = complete(served, "The sky is")
    tokens = complete(served, list(b"The sky is"))
    assert text.choices[0].text == tokens.choices[0].text == " blue"
    assert text.object == "text_completion"
    assert tokens.usage.prompt_tokens_details.cached_tokens == 9


def test_prompts_times_samples_come_back_flat(served: Served) -> None:
    answer = complete(
        served, ["aa", "bb"], n=2, max_tokens=3, seed=1, echo=True, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text[:2] for choice in answer.choices] == ["aa", "aa", "bb", "bb"]
    assert answer.usage.prompt_tokens == 4
    assert answer.usage.completion_tokens == 12


def test_a_list_of_token_lists_is_many_prompts(served: Served) -> None:
    answer = complete(served, [[97], [98, 99]], max_tokens=1)
    assert len(answer.choices) == 2
    assert answer.usage.prompt_tokens == 3


def test_the_default_is_sixteen_tokens(served: Served) -> None:
    served.script(b"x" * 40)
    assert complete(served, "a").choices[0].text == "x" * 16


@pytest.mark.parametrize(
    "options", [{}, {"n": 2, "logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 1}]
)
def test_streams_join_to_the_whole_answer(served: Served, options: dict[str, Any]) -> None:
    fixed = {"max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}, **options}
    whole = complete(served, ["ab", "cd"], **fixed)
    chunks = list(
        complete(served, ["ab", "cd"], stream=True, stream_options={"include_usage": True}, **fixed)
    )
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == choice.index]
        assert "".join(part.text for part in mine) == choice.text
        assert mine[-1].finish_reason == choice.finish_reason == "length"
        if "logprobs" in options:
            joined = [value for part in mine for value in part.logprobs.token_logprobs]
            assert joined == choice.logprobs.token_logprobs
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_harness_scoring_is_consistent_to_the_bit(served: Served) -> None:
    """What lm-eval does: echoed token lists, one token, and a greedy test by equality of floats."""
    prompts = [list(b"one two"), list(b"one three")]
    body = {"max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0, "seed": 1234}
    cold = complete(served, prompts, **body)
    warm = complete(served, prompts, **body)
    for choice, again, prompt in zip(cold.choices, warm.choices, prompts, strict=True):
        listed = choice.logprobs
        assert len(listed.tokens) == len(listed.token_logprobs) == len(prompt) + 1
        assert listed.token_logprobs[0] is None
        assert listed.top_logprobs[0] is None
        assert listed.token_logprobs == again.logprobs.token_logprobs
        for token, value, top in zip(
            listed.tokens[1:], listed.token_logprobs[1:], listed.top_logprobs[1:], strict=True
        ):
            assert top[token] == value
        # The generated token is greedy, so its value is the largest, exactly.
        assert listed.token_logprobs[-1] == max(listed.top_logprobs[-1].values())


@pytest.mark.parametrize("options", [{}, {"echo": True}, {"echo": True, "logprobs": 1}])
@pytest.mark.parametrize("temperature", [0, 1])
def test_zero_tokens_score_or_warm_a_prompt(
    served: Served, options: dict[str, Any], temperature: int
) -> None:
    for _ in range(2):
        answer = complete(served, "warm me", max_tokens=0, temperature=temperature, **options)
        (choice,) = answer.choices
        assert choice.text == ("warm me" if options.get("echo") else "")
        assert choice.finish_reason == "length"
        assert answer.usage.completion_tokens == 0
        if "logprobs" in options:
            assert len(choice.logprobs.token_logprobs) == len("warm me")


def test_a_warmed_prompt_is_reused(served: Served) -> None:
    complete(served, "warm me", max_tokens=0)
    assert complete(served, "warm me please").usage.prompt_tokens_details.cached_tokens == 7


def test_offsets_point_into_the_text(served: Served) -> None:
    served.script(b"cd")
    echoed = complete(served, "äb", max_tokens=2, echo=True, logprobs=0).choices[0]
    assert echoed.text == "äbcd"
    assert echoed.logprobs.text_offset == [0, 1, 1, 2, 3]
    plain = complete(served, "äb", max_tokens=2, logprobs=0).choices[0]
    assert plain.logprobs.text_offset == [2, 3]
    assert [list(top) for top in plain.logprobs.top_logprobs] == [["c"], ["d"]]


def test_an_empty_prompt_is_a_clear_400_and_the_server_goes_on(served: Served) -> None:
    prompts: list[Any] = ["", [""], [], [[]]]
    for prompt in prompts:
        with pytest.raises(openai.BadRequestError) as caught:
            complete(served, prompt)
        assert (caught.value.param or "").startswith("prompt")
    assert complete(served, "a", max_tokens=1).usage.prompt_tokens == 1


def test_one_bad_prompt_refuses_the_batch_before_a_stream_begins(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(served, ["fine", "x" * 5000], stream=True)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt[1]")


def test_what_nobody_asked_for_is_cut_to_what_fits(served: Served) -> None:
    served.script(b"x" * 40)
    for tokens, kept in ((4090, 6), (4095, 1), (4080, 16)):
        answer = complete(served, "a" * tokens)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("x" * kept, "length")
    with pytest.raises(openai.BadRequestError) as caught:
        complete(served, "a" * 4096)
    assert caught.value.param == "prompt"
    assert "16" not in caught.value.message


def test_too_many_tokens_to_generate_are_named_where_the_prompt_alone_fits(served: Served) -> None:
    for prompt, param in (("a" * 4090, "max_tokens"), ("a" * 4096, "prompt")):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(served, prompt, max_tokens=10)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)
