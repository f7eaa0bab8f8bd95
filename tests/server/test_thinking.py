"""Models that think before they answer, through the official SDKs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from server.conftest import Served, serving

QWEN = (
    "{% for m in messages %}<|start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
R1 = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n<think>\n{% endif %}"
)
SAID = b"<think>\nIs it 4?\n</think>\n\nYes, 4."
THOUGHT, TEXT = "Is it 4?", "Yes, 4."
CALL = b'<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}\n</tool_call>'
SCHEMA: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
OPENAI_TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
ANTHROPIC_TOOL: Any = {"name": "add", "input_schema": SCHEMA}
ASK: list[Any] = [{"role": "user", "content": "2 + 2?"}]
THINKS: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def own() -> Iterator[Served]:
    with serving(template=QWEN) as served:
        yield served


@pytest.fixture
def qwen(own: Served) -> Served:
    own.script(SAID)
    return own


@pytest.fixture(scope="module")
def r1() -> Iterator[Served]:
    with serving(template=R1) as served:
        yield served


@pytest.fixture(scope="module")
def claude(own: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=own.url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def chat(served: Served, **options: Any) -> Any:
    return served.openai.chat.completions.create(
        **{"model": "toy", "messages": ASK, "max_tokens": 200, **options}
    )


def prompt_tokens(served: Served, **options: Any) -> int:
    return int(chat(served, max_tokens=1, **options).usage.prompt_tokens)


def ask(client: anthropic.Anthropic, **options: Any) -> Any:
    return client.messages.create(**{"model": "toy", "messages": ASK, "max_tokens": 2000, **options})


def test_an_openai_answer_tells_the_thought_apart_and_counts_its_tokens(qwen: Served) -> None:
    answer = chat(qwen)
    message = answer.choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, TEXT)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens_details.reasoning_tokens == SAID.index(b"\n\nYes")


def test_a_stream_tells_the_same_as_the_whole_answer(qwen: Served) -> None:
    chunks = list(chat(qwen, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [each.reasoning_content for each in deltas if getattr(each, "reasoning_content", None)]
    assert "".join(thoughts) == THOUGHT
    assert len(thoughts) > 3
    assert "".join(delta.content or "" for delta in deltas) == TEXT
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == SAID.index(b"\n\nYes")


def test_a_thought_that_is_never_closed_is_one_to_the_end(qwen: Served) -> None:
    choice = chat(qwen, max_tokens=12).choices[0]
    assert (choice.message.reasoning_content, choice.message.content) == ("Is i", "")
    assert choice.finish_reason == "length"


def test_calls_behind_a_thought_are_found(qwen: Served) -> None:
    qwen.script(SAID + CALL)
    with qwen.openai.chat.completions.stream(
        model="toy", messages=ASK, max_tokens=300, tools=[OPENAI_TOOL]
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert json.loads(message.tool_calls[0].function.arguments) == {"a": 1, "b": [2, 3]}
    assert message.content == TEXT


@pytest.mark.parametrize(
    "options",
    [
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"reasoning_effort": "none"},
        {"response_format": {"type": "json_object"}},
        {"tools": [OPENAI_TOOL], "tool_choice": "required"},
    ],
)
def test_what_switches_thinking_off(qwen: Served, options: Any) -> None:
    shut = len("<think>\n\n</think>\n\n")
    tools = {"tools": options["tools"]} if "tools" in options else {}
    assert prompt_tokens(qwen, **options) == prompt_tokens(qwen, **tools) + shut


def test_a_call_may_set_the_switch_itself(qwen: Served) -> None:
    asked: Any = {"chat_template_kwargs": {"enable_thinking": True}}
    assert prompt_tokens(qwen, reasoning_effort="none", extra_body=asked) == prompt_tokens(qwen)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_thought_that_is_sent_back_is_shown_to_the_model(qwen: Served, name: str) -> None:
    turns = [*ASK, {"role": "assistant", "content": "4", name: "Hm"}, *ASK]
    bare = [*ASK, {"role": "assistant", "content": "4"}, *ASK]
    shown = len("<think>\nHm\n</think>\n\n")
    assert prompt_tokens(qwen, messages=turns) == prompt_tokens(qwen, messages=bare) + shown


def test_a_template_that_opens_the_thought_itself_needs_no_tag_in_the_answer(r1: Served) -> None:
    r1.script(b"Is it 4?\n</think>\n\nYes, 4.")
    message = chat(r1).choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, TEXT)


def test_a_constrained_answer_closes_the_thought_that_the_template_opens(r1: Served) -> None:
    r1.script(None)
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    answer = chat(r1, response_format=form)
    assert json.loads(answer.choices[0].message.content) == {"a": 1}
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0
    explained = r1.http.get(f"/v1/requests/{answer.id}/cache")
    assert explained.status_code == 200, explained.text


def test_a_model_that_does_not_think_says_what_it_says(served: Served) -> None:
    served.script(SAID)
    answer = chat(served)
    assert answer.choices[0].message.content == SAID.decode()
    assert not hasattr(answer.choices[0].message, "reasoning_content")
    assert answer.usage.completion_tokens_details is None


def test_a_message_has_its_thought_as_a_signed_block(qwen: Served, claude: anthropic.Anthropic) -> None:
    del qwen
    thought, text = ask(claude, thinking=THINKS).content
    assert (thought.type, thought.thinking) == ("thinking", THOUGHT)
    assert thought.signature
    assert (text.type, text.text) == ("text", TEXT)


@pytest.mark.parametrize("tools", [[], [ANTHROPIC_TOOL]])
def test_the_anthropic_sdk_collects_the_stream_as_the_whole_message(
    qwen: Served, claude: anthropic.Anthropic, tools: list[Any]
) -> None:
    qwen.script(SAID + (CALL if tools else b""))
    options: dict[str, Any] = {"thinking": {"type": "adaptive"}, "tools": tools}
    whole = ask(claude, **options)
    with claude.messages.stream(model="toy", messages=ASK, max_tokens=2000, **options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds.count("signature") == 1
    assert kinds.count("thinking") > 3
    for one, other in zip(final.content, whole.content, strict=True):
        exclude = {"id", "signature"}
        assert one.model_dump(exclude=exclude) == other.model_dump(exclude=exclude)
    assert final.stop_reason == whole.stop_reason == ("tool_use" if tools else "end_turn")
    if tools:
        assert final.content[-1].model_dump()["input"] == {"a": 1, "b": [2, 3]}
        assert kinds.count("input_json") > 5


@pytest.mark.parametrize("kind", [None, "disabled"])
def test_a_message_that_does_not_ask_for_thinking_is_prompted_not_to(
    qwen: Served, claude: anthropic.Anthropic, kind: str | None
) -> None:
    del qwen
    thinking: Any = anthropic.NOT_GIVEN if kind is None else {"type": kind}
    counted = claude.messages.count_tokens(model="toy", messages=ASK, thinking=thinking).input_tokens
    thinks = claude.messages.count_tokens(model="toy", messages=ASK, thinking=THINKS).input_tokens
    assert counted == thinks + len("<think>\n\n</think>\n\n")
    assert ask(claude, thinking=thinking).usage.input_tokens == counted


@pytest.mark.parametrize(
    "config",
    [{"thinkingConfig": {"thinkingBudget": 0}}, {"responseMimeType": "application/json"}],
    ids=["no budget", "a form"],
)
def test_gemini_counts_a_whole_request_as_its_answer_is_prompted(qwen: Served, config: Any) -> None:
    qwen.script(b"{}")
    call = {"contents": [{"parts": [{"text": "Why?"}]}], "generationConfig": config}
    with httpx.Client(base_url=qwen.url, timeout=30) as client:
        asked = client.post("/v1beta/models/toy:countTokens", json={"generateContentRequest": call}).json()
        plain = client.post("/v1beta/models/toy:countTokens", json={"contents": call["contents"]}).json()
        answer = client.post("/v1beta/models/toy:generateContent", json=call).json()
    assert asked["totalTokens"] == answer["usageMetadata"]["promptTokenCount"]
    assert asked["totalTokens"] == plain["totalTokens"] + len("<think>\n\n</think>\n\n")


def test_a_message_that_must_call_does_not_think(qwen: Served, claude: anthropic.Anthropic) -> None:
    qwen.script(b'<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>')
    options: dict[str, Any] = {"tools": [ANTHROPIC_TOOL], "thinking": THINKS}
    free = claude.messages.count_tokens(model="toy", messages=ASK, **options).input_tokens
    options["tool_choice"] = {"type": "any"}
    message = ask(claude, **options)
    assert [block.type for block in message.content] == ["tool_use"]
    counted = claude.messages.count_tokens(model="toy", messages=ASK, **options).input_tokens
    assert message.usage.input_tokens == counted == free + len("<think>\n\n</think>\n\n")


def test_thoughts_are_sent_back_with_their_signature(qwen: Served, claude: anthropic.Anthropic) -> None:
    del qwen
    said = ask(claude, thinking=THINKS).content
    hidden = {"type": "redacted_thinking", "data": "x"}
    turns: Any = [
        *ASK,
        {"role": "assistant", "content": [hidden, *(b.model_dump() for b in said)]},
        {"role": "system", "content": "Be brief."},
        *ASK,
    ]
    bare: Any = [*ASK, {"role": "assistant", "content": TEXT}, *turns[2:]]
    sizes = [claude.messages.count_tokens(model="toy", messages=each).input_tokens for each in (turns, bare)]
    assert sizes[0] == sizes[1] + len(f"<think>\n{THOUGHT}\n</think>\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_cut_short_has_no_input_and_says_why(
    qwen: Served, claude: anthropic.Anthropic, stream: bool
) -> None:
    qwen.script(CALL)
    limit = CALL.index(b": [") + 4
    if stream:
        with claude.messages.stream(
            model="toy", messages=ASK, max_tokens=limit, tools=[ANTHROPIC_TOOL]
        ) as events:
            parts = [event.partial_json for event in events if event.type == "input_json"]
            message = events.get_final_message()
        assert "".join(parts) == '{"a": 1, "b": ['
    else:
        message = ask(claude, max_tokens=limit, tools=[ANTHROPIC_TOOL])
        assert message.content[0].input == {}
    assert message.content[0].type == "tool_use"
    assert message.stop_reason == "max_tokens"
