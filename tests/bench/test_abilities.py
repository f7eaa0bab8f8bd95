"""Servers of others: what they take is found out, and what they want is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from bench.abilities import discover
from bench.asking import Abilities, Server
from bench.command import main
from bench.document import shown_command
from bench.errors import BenchError, BenchUsageError

MakeStub = Callable[..., Any]
Serving = Callable[[Any], AbstractAsyncContextManager[Server]]


def found_out(serving: Serving, stub: Any) -> Abilities:
    async def go() -> Abilities:
        async with serving(stub) as server:
            return (await discover(server)).abilities

    return asyncio.run(go())


BOTH = ("min_tokens", "ignore_eos")


@pytest.mark.parametrize(
    ("ways", "abilities"),
    [
        ({}, Abilities("ids", BOTH, True, samples=True, exact=False)),
        ({"refuses": {"min_tokens"}}, Abilities("ids", ("ignore_eos",), True, exact=False)),
        ({"refuses": {"ids", "ignore_eos"}}, Abilities("text", ("min_tokens",), True, exact=False)),
        ({"refuses": {"/v1/completions"}}, Abilities("chat", BOTH, True, exact=False)),
        ({"refuses": {"stream_options"}}, Abilities("ids", BOTH, False, exact=False)),
        ({"refuses": {"n"}}, Abilities("ids", BOTH, True, samples=False, exact=False)),
        ({"short": True}, Abilities("ids", (), True, samples=False, exact=False)),
        ({"refuses": {"ids", *BOTH, "stream_options"}}, Abilities("text", (), False, exact=False)),
    ],
)
def test_abilities_are_found_out(
    make_stub: MakeStub, serving: Serving, ways: dict[str, Any], abilities: Abilities
) -> None:
    assert found_out(serving, make_stub("s", "openai", **_frozen(ways))) == abilities


def _frozen(ways: dict[str, Any]) -> dict[str, Any]:
    return {name: frozenset(value) if isinstance(value, set) else value for name, value in ways.items()}


def test_a_server_that_answers_nothing_is_an_error(make_stub: MakeStub, serving: Serving) -> None:
    none = frozenset({"/v1/completions", "/v1/chat/completions"})
    with pytest.raises(BenchError, match=r"(?s)answers neither completions nor chats.*status 404"):
        found_out(serving, make_stub("s", "openai", refuses=none))


def test_a_server_that_wants_a_key_says_so(make_stub: MakeStub, serving: Serving) -> None:
    async def go(key: str | None) -> None:
        async with serving(make_stub("s", "openai", key="secret")) as server:
            from dataclasses import replace

            address = replace(server.address, key=key)
            await discover(replace(server, address=address))
            assert "secret" not in repr(server)

    asyncio.run(go("secret"))
    with pytest.raises(BenchUsageError, match=r"(?s)wants an API key.*hint: --api-key KEY"):
        asyncio.run(go(None))


def test_keys_are_not_shown() -> None:
    typed = ["sapwood", "bench", "--api-key", "k1", "--api-key=k2", "--quick"]
    assert shown_command(typed) == "sapwood bench --api-key KEY --api-key=KEY --quick"


def bench(serving: Serving, flags: Callable[[str, str], list[str]], ours: Any, peer: Any) -> int:
    async def go() -> int:
        async with serving(ours) as a, serving(peer) as b:
            urls = [f"http://127.0.0.1:{server.address.port}" for server in (a, b)]
            return await asyncio.to_thread(main, flags(urls[0], urls[1]))

    return asyncio.run(go())


def test_both_are_asked_in_the_form_that_the_weaker_takes(
    make_stub: MakeStub, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = frozenset({"ids", "min_tokens", "ignore_eos"})
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "openai", key="k", refuses=refuses)
    given = ["serve", "--quick", "--json", "--cases=cold_prefill,shared_system", "--api-key=k"]
    assert bench(serving, lambda a, b: [*given, f"--ours={a}", f"--against={b}"], ours, peer) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["regime"]["prompts"] == "text"
    assert "--api-key=KEY" in told["command"]
    assert {row["scenario"] for row in told["rows"]} == {"cold_prefill", "shared_system"}
    assert all(row["ratio"] > 0 for row in told["rows"])
    asked = {
        name: [body["prompt"] for n, _, body in ours.log if n == name and "prompt" in body]
        for name in ("ours", "peer")
    }
    shared = [prompt for prompt in asked["ours"] if isinstance(prompt, str) and len(prompt.split()) == 112]
    assert len(shared) == 9
    assert set(shared) <= {prompt for prompt in asked["peer"] if isinstance(prompt, str)}


def test_a_server_is_measured_alone(
    make_stub: MakeStub, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = make_stub("peer", "openai")
    given = ["serve", "--quick", "--json", "--alone", "--cases=decode_1,exact_repeat"]
    assert bench(serving, lambda _, b: [*given, f"--against={b}"], make_stub("ours", "sapwood"), stub) == 0
    told = json.loads(capsys.readouterr().out)
    assert "alone" in told["regime"]["measured"]
    assert {name for name, _, _ in stub.log} == {"peer"}
    assert all(row["ours"] is not None and row["against"] is None for row in told["rows"])
    given.remove("--json")
    assert bench(serving, lambda _, b: [*given, f"--against={b}"], make_stub("ours", "sapwood"), stub) == 0
    assert capsys.readouterr().out.startswith("| scenario | measure | value |")


def test_a_missing_model_list_has_a_hint(
    make_stub: MakeStub, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = make_stub("peer", "openai", refuses=frozenset({"/v1/models"}))
    given = ["serve", "--quick", "--json", "--alone", "--cases=cold_prefill"]
    assert bench(serving, lambda _, b: [*given, f"--against={b}"], make_stub("ours", "sapwood"), stub) == 1
    assert "hint: --against-model NAME" in capsys.readouterr().err
    named = [*given, "--against-model=some"]
    assert bench(serving, lambda _, b: [*named, f"--against={b}"], make_stub("ours", "sapwood"), stub) == 0
    assert stub.log[-1][2]["model"] == "some"


def test_the_document_of_a_run_is_saved(make_stub: MakeStub, serving: Serving, tmp_path: Path) -> None:
    out = tmp_path / "new" / "serve.json"
    given = ["serve", "--quick", "--cases=cold_prefill,decode_1", f"--out={out}"]
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "openai")
    assert bench(serving, lambda a, b: [*given, f"--ours={a}", f"--against={b}"], ours, peer) == 0
    assert [row["scenario"] for row in json.loads(out.read_text())["rows"]] == [
        "cold_prefill",
        "decode_1",
        "decode_1",
    ]
