"""Counts of tokens, under the names that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sapwood.sim.readers.usage import Usage, counted, usage_of

OTLP = [
    {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "600"}},
    {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "80"}},
]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens": 600, "completion_tokens": 80},
        {"prompt_tokens": "600", "completion_tokens": "80.0"},
        {"Prompt Tokens": "600", "Completion Tokens": "80"},
        {"promptTokens": 600, "completionTokens": 80},
        {"usage": {"input_tokens": 600, "output_tokens": 80}},
        {"usage": {"input": 600, "output": 80}, "input": "Hi", "output": "Yo"},
        {
            "usage": {
                "input_tokens": 50,
                "cache_read_input_tokens": 500,
                "cache_creation_input_tokens": 50,
                "output_tokens": 80,
            }
        },
        {"prompt_tokens": 600, "cache_read_input_tokens": 500, "completion_tokens": 80},
        {
            "usage": {
                "inputTokens": 50,
                "cacheReadInputTokens": 500,
                "cacheWriteInputTokens": 50,
                "outputTokens": 80,
            }
        },
        {"usage_metadata": {"promptTokenCount": 600, "candidatesTokenCount": 30, "thoughtsTokenCount": 50}},
        {"attributes": {"gen_ai.usage.input_tokens": 600, "gen_ai.usage.output_tokens": 80}},
        {"attributes": OTLP},
        {
            "tokens_prompt": 550,
            "native_tokens_prompt": 600,
            "tokens_completion": 70,
            "native_tokens_completion": 80,
        },
        {"metadata": '{"usage_object": {"prompt_tokens": 600, "completion_tokens": 80}}'},
        {"usage_metadata": {"promptTokenCount": 600, "candidatesTokenCount": 80}},
        {"usage": {"prompt_tokens": 600}, "completion_tokens": 80},
        {"usage": None, "prompt_tokens": 600, "completion_tokens": 80},
        {"ContextTokens": "600", "GeneratedTokens": "80"},
        {"Timestamp": "5", "Request tokens": "600", "Response tokens": "80", "Total tokens": "680"},
    ],
)
def test_counts_are_found(fields: Mapping[str, Any]) -> None:
    assert usage_of(fields) == Usage(600, 80)


def test_an_answer_tells_it_too() -> None:
    assert usage_of({"output": "Yo"}, {"usage": {"prompt_tokens": 600, "completion_tokens": 80}}) == Usage(
        600, 80
    )


@pytest.mark.parametrize("count", [-1, 1.5, "many", "", True, None, [1], 2**40, float("nan"), "inf"])
def test_what_is_no_count_is_none(count: Any) -> None:
    assert usage_of({"prompt_tokens": count, "output_tokens": 3}) == Usage(None, 3)
    assert not usage_of({"prompt_tokens": count, "output_tokens": 3}).whole


def test_the_columns_that_count_are_known() -> None:
    assert counted(["TIMESTAMP", "ContextTokens", "GeneratedTokens"]) == ("ContextTokens", "GeneratedTokens")
    assert counted(["tokens_prompt", "native_tokens_prompt"]) == ("native_tokens_prompt",)
    assert counted(["a"]) == ()
