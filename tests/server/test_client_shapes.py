"""What coding agents put on the wire, replayed with invented content: over two turns, of which the second reuses
the first. Shapes: Claude Code's messages and Codex CLI's responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import httpx
import pytest

from sapwood.server import generate
from server.conftest import Served, serving
from server.fakes import FakeFacts
from server.test_thinking import QWEN

MARK = {"cache_control": {"type": "ephemeral"}}
THOUGHT = "I must read it first."
CALLS = (
    "Let me look.\n"
    '<tool_call>\n{"name": "Read", "arguments": {"file_path": "/tmp/f7.py", "limit": 20}}\n</tool_call>\n'
    '<tool_call>\n{"name": "Bash", "arguments": {"command": "git status"}}\n</tool_call>'
)
SAID = f"<think>\n{THOUGHT}\n</think>\n\n{CALLS}"


@pytest.fixture(scope="module")
def own() -> Iterator[Served]:
    with serving(FakeFacts(max_context=12_288, capacity_pages=16_384), template=QWEN) as served:
        yield served


@pytest.fixture
def agents(own: Served) -> Served:
    """A server for agents, with nothing in its cache."""
    own.script(SAID.encode())
    assert own.http.post("/flush_cache").status_code == 200
    return own


def frames(answer: httpx.Response) -> list[dict[str, Any]]:
    """A stream's events, once it is seen that each is named as it says."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for frame in filter(None, answer.text.split("\n\n")):
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Kinds of events, what comes several times in a row once."""
    return [kind for kind, _ in groupby(str(event["type"]) for event in events)]


def reused(answer: httpx.Response) -> int:
    """Tokens of the prompt that were really not computed."""
    return int(answer.headers["x-sapwood-cache"].split(";")[0].removeprefix("reused="))


# Claude Code

PING = "event: ping"
SEPARATOR = "\n"
"""Between two texts of one message."""
CLAUDE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": ",".join(
        f"{name}-2025-{month:02d}-14"
        for month, name in enumerate(["claude-code", "interleaved-thinking"] * 5, 1)
    ),
    "anthropic-dangerous-direct-browser-access": "true",
    "authorization": "Bearer none",
    "user-agent": "claude-cli/2.3.1 (external, cli)",
    "x-app": "cli",
    "x-claude-code-session-id": "0199c0de-0000-4000-8000-000000000000",
    "x-stainless-helper-method": "stream",
    "x-stainless-retry-count": "0",
}
SYSTEM_TEXT = "You are an agent that edits code. " * 40
SESSION_TEXT = "Working directory: /tmp/fuses\nGit: clean\n" * 5


def claude_body(billing: int, *messages: Any, **more: Any) -> dict[str, Any]:
    """The body of a turn; its billing line is another each time."""
    schema = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}
    shell = {"type": "object", "properties": {"command": {"type": "string"}}, "additionalProperties": False}
    return {
        "model": "toy",
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {
                "type": "text",
                "text": f"x-anthropic-billing-header: cc_version=2.3.1.{billing:03x}; cch={billing};",
            },
            {"type": "text", "text": SYSTEM_TEXT, **MARK},
            {"type": "text", "text": SESSION_TEXT, **MARK},
        ],
        "tools": [
            {
                "name": "Read",
                "description": "Reads a file.",
                "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema},
                "eager_input_streaming": True,
            },
            {"name": "Bash", "description": "Runs a command.", "input_schema": shell, "strict": True},
            {"name": "mcp__find", "description": "Finds.", "input_schema": shell, "defer_loading": False},
        ],
        "messages": list(messages),
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "0199c0de"})},
        "diagnostics": {"previous_message_id": None},
        **more,
    }


def ask_claude(served: Served, body: dict[str, Any]) -> httpx.Response:
    return served.http.post("/v1/messages", params={"beta": "true"}, json=body, headers=CLAUDE_HEADERS)


def collected(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream, made as the SDK makes it."""
    message: dict[str, Any] = events[0]["message"]
    for event in events[1:]:
        match event:
            case {"type": "content_block_start", "content_block": block, "index": index}:
                assert index == len(message["content"])
                message["content"].append(dict(block))
                written = ""
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": part}}:
                written += part
                message["content"][-1]["input"] = json.loads(written) if written.endswith("}}") else {}
            case {"type": "content_block_delta", "delta": {"type": kind} as delta}:
                name = kind.removesuffix("_delta")
                message["content"][-1][name] = message["content"][-1].get(name, "") + delta[name]
            case {"type": "content_block_stop"} if message["content"][-1]["type"] == "tool_use":
                message["content"][-1]["input"] = json.loads(written)
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                message |= delta
                message["usage"] |= usage
    return message


def told(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]


FIRST = {
    "role": "user",
    "content": [
        {"type": "text", "text": "<system-reminder>\nNo notes yet.\n</system-reminder>"},
        {"type": "text", "text": "Why does F7 blow?", **MARK},
    ],
}


def unmarked(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]]
    return {**message, "content": content}


def results(message: dict[str, Any]) -> dict[str, Any]:
    """A user's turn that answers all calls of a message, marked at its end."""
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    content = [
        {"type": "tool_result", "tool_use_id": calls[0]["id"], "content": "fuse = 7\n" * 10},
        {
            "type": "tool_result",
            "tool_use_id": calls[1]["id"],
            "content": [{"type": "text", "text": "nothing to commit"}],
            "is_error": False,
            **MARK,
        },
    ]
    return {"role": "user", "content": content}


def test_claude_codes_second_turn_reads_its_first_though_the_billing_line_changed(agents: Served) -> None:
    first = ask_claude(agents, claude_body(1, FIRST))
    message = collected(frames(first))
    read, written = told(message["usage"])
    assert (read, reused(first)) == (0, 0)
    assert written > len(SYSTEM_TEXT) + len(SESSION_TEXT)
    assert message["stop_reason"] == "tool_use"

    agents.script(b"A wire is loose.")
    turns = [unmarked(FIRST), {"role": "assistant", "content": message["content"]}, results(message)]
    second = ask_claude(agents, claude_body(2, *turns, diagnostics={"previous_message_id": message["id"]}))
    usage = collected(frames(second))["usage"]
    assert told(usage)[0] == written
    assert told(usage)[1] > len(CALLS)
    # The answer as well, though it came back as blocks: all of it but the token that ended it.
    first_prompt = written + message["usage"]["input_tokens"]
    assert reused(second) == first_prompt + message["usage"]["output_tokens"] - 1
    assert usage["input_tokens"] == message["usage"]["input_tokens"] + len("\n</tool_response>")


def test_claude_code_gets_thoughts_text_and_calls_as_blocks(agents: Served) -> None:
    events = frames(ask_claude(agents, claude_body(1, FIRST)))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds(events) == ["message_start", *block * 4, "message_delta", "message_stop"]
    thought, text, *calls = collected(events)["content"]
    assert (thought["type"], thought["thinking"]) == ("thinking", THOUGHT)
    assert thought["signature"]
    assert (text["type"], text["text"].strip()) == ("text", "Let me look.")
    assert [(call["name"], call["input"]) for call in calls] == [
        ("Read", {"file_path": "/tmp/f7.py", "limit": 20}),
        ("Bash", {"command": "git status"}),
    ]
    assert len({call["id"] for call in calls}) == 2


def test_another_session_of_claude_code_reuses_the_text_before_what_is_its_own(agents: Served) -> None:
    ask_claude(agents, claude_body(1, FIRST))
    body = claude_body(2, FIRST)
    body["system"][2] = {"type": "text", "text": SESSION_TEXT.replace("/tmp", "/var"), **MARK}
    answer = ask_claude(agents, body)
    usage = collected(frames(answer))["usage"]
    counted = agents.http.post(
        "/v1/messages/count_tokens",
        params={"beta": "true"},
        headers=CLAUDE_HEADERS,
        json={name: body[name] for name in ("model", "system", "tools", "messages", "thinking")},
    )
    assert counted.json() == {"input_tokens": sum(told(usage)) + usage["input_tokens"]}
    # This template writes the tools last, so up to no marker are the two prompts the same.
    assert told(usage)[0] == 0
    assert reused(answer) == len(
        "\0system\n" + SYSTEM_TEXT + SEPARATOR + SESSION_TEXT.partition("/")[0] + "/"
    )


def test_claude_codes_probes_are_answered(agents: Served) -> None:
    assert agents.http.head("/api/hello").status_code == 200
    listed = agents.http.get("/v1/models", params={"limit": 1000}, headers=CLAUDE_HEADERS).json()
    assert [model["id"] for model in listed["data"]] == ["toy"]
    quota = {"model": "toy", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    answer = ask_claude(agents, quota).json()
    assert (answer["type"], answer["stop_reason"]) == ("message", "max_tokens")


def test_claude_code_is_pinged_while_its_prompt_is_read(
    agents: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "HEADER_PATIENCE", 0.01)
    monkeypatch.setattr(generate, "KEEP_ALIVE_SECONDS", 0.01)
    goes_on = threading.Event()
    runner = agents.built.runner
    hook = runner.hook

    def waiting(plan: Any) -> Any:
        assert goes_on.wait(30)
        return hook(plan)

    runner.hook = waiting
    try:
        with agents.http.stream(
            "POST", "/v1/messages?beta=true", json=claude_body(1, FIRST), headers=CLAUDE_HEADERS
        ) as answer:
            lines = []
            for line in answer.iter_lines():
                lines.append(line)
                if lines.count(PING) == 3:
                    goes_on.set()
    finally:
        goes_on.set()
        runner.hook = hook
    assert lines.count('data: {"type":"ping"}') == lines.count(PING) >= 3
    events = [line for line in lines if line.startswith("event: ") and line != PING]
    assert (events[0], events[-1]) == ("event: message_start", "event: message_stop")


# Codex CLI


def codex_body(*input: Any, **more: Any) -> dict[str, Any]:
    shell = {"type": "object", "properties": {"command": {"type": "string"}}, "additionalProperties": False}
    return {
        "model": "toy",
        "instructions": "You are a coding agent in a terminal. " * 30,
        "input": list(input),
        "tools": [
            {
                "type": "function",
                "name": "Bash",
                "description": "Runs.",
                "strict": False,
                "parameters": shell,
            },
            {
                "type": "function",
                "name": "Read",
                "description": "Reads.",
                "strict": False,
                "parameters": shell,
            },
            {"type": "local_shell"},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "x"}},
            {"type": "web_search", "external_web_access": False},
            {"type": "not_yet_invented", "setting": {"a": 1}},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199c0de-conversation",
        "text": {"verbosity": "low"},
        **more,
    }


def said_by(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


OPENING = (
    said_by("developer", "<permissions>\nYou may read.\n</permissions>"),
    said_by("user", "<environment_context>\n<cwd>/tmp/fuses</cwd>\n</environment_context>"),
    said_by("user", "Why does F7 blow?"),
)


def ask_codex(served: Served, body: dict[str, Any]) -> httpx.Response:
    headers = {
        "authorization": "Bearer none",
        "originator": "codex_cli_rs",
        "session_id": "0199c0de",
        "user-agent": "codex_cli_rs/0.77.0 (Linux; x86_64)",
        "accept": "text/event-stream",
    }
    return served.http.post("/v1/responses", json=body, headers=headers)


def items_of(events: list[dict[str, Any]]) -> list[Any]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def test_codex_gets_every_item_and_the_end_that_it_waits_for(agents: Served) -> None:
    answer = ask_codex(agents, codex_body(*OPENING))
    events = frames(answer)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    end = events[-1]
    assert end["type"] == "response.completed"
    assert end["response"]["id"] == events[0]["response"]["id"]
    usage = end["response"]["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    assert usage["input_tokens_details"]["cached_tokens"] == reused(answer) == 0
    thought, text, *calls = items_of(events)
    assert (thought["type"], text["type"]) == ("reasoning", "message")
    assert thought["encrypted_content"]
    assert [(call["type"], call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("function_call", "Read", {"file_path": "/tmp/f7.py", "limit": 20}),
        ("function_call", "Bash", {"command": "git status"}),
    ]
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [item["id"] for item in items_of(events)]
    ignored = answer.headers["x-sapwood-ignored"].split(",")
    assert ignored == ["tools.local_shell", "tools.custom", "tools.web_search", "tools.not_yet_invented"]


def test_codexs_second_turn_reuses_its_first_and_what_was_answered(agents: Served) -> None:
    first = frames(ask_codex(agents, codex_body(*OPENING)))
    items = items_of(first)
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": f"exit 0\n{item['name']}"}
        for item in items
        if item["type"] == "function_call"
    ]
    # Nothing is stored, so all comes back; reasoning without its words, only sealed.
    sent_back = [
        {k: v for k, v in item.items() if k not in ("id", "status", "content")} for item in items[:1]
    ]
    sent_back += [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items[1:]]
    agents.script(b"A wire is loose.")
    answer = ask_codex(agents, codex_body(*OPENING, *sent_back, *outputs))
    second = frames(answer)
    before, after = (each[-1]["response"]["usage"] for each in (first, second))
    assert reused(answer) == after["input_tokens_details"]["cached_tokens"] == before["total_tokens"] - 1
    (message,) = items_of(second)
    assert message["content"][0]["text"] == "A wire is loose."


def test_codex_is_told_of_a_context_that_is_too_long_by_the_code_that_it_knows(agents: Served) -> None:
    answer = ask_codex(agents, codex_body(said_by("user", "x" * 20_000)))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
