"""The client and the prompts, against servers made of a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from bench.answers import read_answer, read_piece
from bench.asking import Ask, Message, Server
from bench.client import Address, Arrival, EventSplitter, Exchange, exchange
from bench.errors import BenchError, BenchUsageError
from bench.processes import Launch, running
from bench.prompts import HIGHEST_ID, LOWEST_ID, Prompts

MakeStub = Callable[..., Any]
Serving = Callable[[Any], AbstractAsyncContextManager[Server]]


# ---- the client ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_found_wherever_the_stream_is_cut(size: int) -> None:
    stream = b': ping\n\ndata: {"a":1}\r\n\r\nevent: x\ndata:b\ndata: c\n\ndata: [DONE]\n\ndata: cut off'
    splitter = EventSplitter()
    events = [event for i in range(0, len(stream), size) for event in splitter.feed(stream[i : i + size])]
    assert events == [b'{"a":1}', b"b\nc", b"[DONE]"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("http://localhost:8000/v1/", Address("localhost", 8000)),
        ("box:9", Address("box", 9)),
        ("https://api.example", Address("api.example", 443, tls=True)),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a/v2/chat", "nonsense", "http://a:99999", "http://a:x", "a:0"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BenchUsageError):
        Address.parse(url)


def test_pieces_of_both_dialects() -> None:
    llama = read_piece({"content": "a", "stop": False, "completion_probabilities": [{"logprob": -1.5}]})
    assert (llama.text, llama.logprobs, llama.answers) == ("a", (-1.5,), True)
    end = read_piece(
        {
            "content": "",
            "stop": True,
            "tokens_evaluated": 9,
            "tokens_predicted": 2,
            "timings": {"cache_n": 8},
            "completion_probabilities": [{"logprob": -1.5}],
        }
    )
    assert (end.prompt_tokens, end.cached_tokens, end.completion_tokens, end.logprobs) == (9, 8, 2, ())
    first = read_piece({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
    assert not first.answers
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read_piece({"choices": [], "usage": usage}).cached_tokens == 8
    with pytest.raises(BenchError, match="out of pages"):
        read_piece({"error": {"message": "out of pages"}})


@pytest.mark.parametrize("total", [None, 7])
def test_tokens_of_several_answers_are_added_up(total: int | None) -> None:
    def event(index: int | None, count: int) -> bytes:
        choices = [] if index is None else [{"index": index, "text": "a", "finish_reason": "length"}]
        return json.dumps({"choices": choices, "usage": {"completion_tokens": count}}).encode()

    data = [event(0, 1), event(1, 3), event(0, 3)] + ([] if total is None else [event(None, total)])
    arrivals = tuple(Arrival(float(i), one) for i, one in enumerate(data))
    answer = read_answer(Exchange(200, 0.0, 9.0, arrivals, b""))
    assert answer.completion_tokens == (6 if total is None else total)


def ask_stub(serving: Serving, stub: Any, ask: Ask) -> Any:
    async def go() -> Any:
        async with serving(stub) as server:
            return await server.ask(ask)

    return asyncio.run(go())


@pytest.mark.parametrize("dialect", ["sapwood", "llama.cpp", "openai"])
@pytest.mark.parametrize("prompt", [(400, 401, 402), "some text", (Message("user", "hello"),)])
def test_every_prompt_in_every_dialect(
    make_stub: MakeStub, serving: Serving, dialect: Any, prompt: Any
) -> None:
    stub = make_stub("s", dialect)
    answer = ask_stub(serving, stub, Ask(prompt, 3))
    assert len(answer.text.split()) == 3
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (len(prompt), 0, 3)
    assert 0.0 < answer.first_token <= answer.last_token
    [(_, path, body)] = stub.log
    assert body["temperature"] == 0
    assert body["stream"] is True
    if isinstance(prompt[0], Message):
        assert path == "/v1/chat/completions"
        assert body["messages"] == [{"role": "user", "content": "hello"}]
    else:
        assert path == ("/completion" if dialect == "llama.cpp" else "/v1/completions")
        assert body["prompt"] == (prompt if isinstance(prompt, str) else list(prompt))


def test_logprobs_come_once_per_token(make_stub: MakeStub, serving: Serving) -> None:
    for dialect, value in (("sapwood", -0.25), ("llama.cpp", -0.5)):
        answer = ask_stub(serving, make_stub("s", dialect), Ask("text", 3, logprobs=True))
        assert answer.logprobs == (value,) * 3


def test_an_answer_of_the_wrong_length_is_an_error(make_stub: MakeStub, serving: Serving) -> None:
    with pytest.raises(BenchError, match="generated 3 tokens; 4 were asked for"):
        ask_stub(serving, make_stub("s", "sapwood", short=True), Ask("text", 4))


def test_a_status_other_than_ok_is_an_error(make_stub: MakeStub, serving: Serving) -> None:
    async def go() -> None:
        async with serving(make_stub("s", "sapwood")) as server:
            await exchange(server.address, "GET", "/nowhere")

    with pytest.raises(BenchError, match=r"status 404: .*there is no /nowhere"):
        asyncio.run(go())


def test_nobody_listening_is_an_error() -> None:
    with pytest.raises(BenchError, match="failed"):
        asyncio.run(exchange(Address("127.0.0.1", 1), "GET", "/health", timeout=5.0))


def test_a_server_that_ends_at_once_is_an_error() -> None:
    import sys

    async def go() -> None:
        async with running(Launch("x", "openai", (sys.executable, "-c", "raise SystemExit('no model')"))):
            pytest.fail("it cannot run")

    with pytest.raises(BenchError, match=r"(?s)x ended with status 1:.*no model"):
        asyncio.run(go())


# ---- prompts ---------------------------------------------------------------------------------------------------


def test_prompts_repeat_and_never_meet() -> None:
    prompts = Prompts(1)
    ids = prompts.ids(200, "case", 0)
    assert ids == Prompts(1).ids(200, "case", 0)
    assert len(ids) == 200
    assert all(LOWEST_ID <= id < HIGHEST_ID for id in ids)
    others = [prompts.ids(200, "case", 1), prompts.ids(200, "other", 0), Prompts(2).ids(200, "case", 0)]
    assert all(other[:4] != ids[:4] for other in others)
    assert len(prompts.words(25, "case").replace(".", "").split()) == 25
    assert prompts.words(25, "case") == prompts.words(25, "case") != prompts.words(25, "case", 1)
