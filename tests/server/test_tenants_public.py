"""[[public_prefix]]: all tenants read it from their first request on, and share nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.chat import ChatTemplate
from sapwood.config import ServerConfig
from sapwood.errors import UsageError
from sapwood.server import Server
from sapwood.server.public_text import PublicText
from sapwood.server.tenants import load_tenants
from server.conftest import Served, serving
from server.fakes import FakeFacts, build_fake
from server.test_tenants import FILE, cached, complete, explained, missed, send

RULES = "You are the house's assistant. Answer briefly, and never make things up."
POLICIES = {"eviction": "default", "schedule": "lpm", "prefix_index": "radix"}
CHAT = "/v1/chat/completions"

Facts = Callable[..., FakeFacts]


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    (tmp_path / "rules.txt").write_text(RULES + "\n")
    path = tmp_path / "tenants.toml"
    path.write_text(
        FILE
        + '[[public_prefix]]\nname = "raw"\nfile = "rules.txt"\nrole = "raw"\n'
        + '[[public_prefix]]\nname = "chat"\nfile = "rules.txt"\n'
    )
    return path


@pytest.fixture(params=[("radix", 1), ("radix", 4), ("blocks", 4)])
def facts(request: pytest.FixtureRequest) -> FakeFacts:
    index, page_size = request.param
    return FakeFacts(
        page_size=page_size,
        capacity_pages=2048 // page_size,
        pin_tokens=400,
        policies={**POLICIES, "eviction": "lru", "prefix_index": index},
    )


@pytest.fixture
def served(facts: FakeFacts, keys_file: Path) -> Iterator[Served]:
    with serving(facts, api_keys=keys_file) as served:
        yield served


def whole(served: Served, tokens: int) -> int:
    size: int = served.built.facts.page_size
    return tokens // size * size


def chat(served: Served, who: str, system: str, user: str = "hello") -> Any:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    answer = send(
        served, who, "POST", CHAT, {"messages": messages, "model": "toy", "max_tokens": 4, "temperature": 0}
    )
    assert answer.status_code == 200, answer.text
    return answer


def test_every_tenant_reuses_a_public_prefix_on_its_first_request(served: Served) -> None:
    for tenant in ("a", "b", "ops"):
        answer = complete(served, tenant, f"{RULES} I am {tenant}, let me in.")
        assert cached(answer) == whole(served, len(RULES))
        assert answer.headers["x-sapwood-cache"].startswith(f"reused={whole(served, len(RULES))};")
        told = explained(served, tenant, answer)
        assert told["reused"]["hot"] == whole(served, len(RULES))
        assert set(missed(served, tenant, answer)) <= {"never_seen", "page_tail", "last_token"}


def test_a_chat_whose_system_message_begins_with_it_reuses_the_templates_head_too(served: Served) -> None:
    head = 1 + len("system\n") + len(RULES)
    for tenant in ("a", "b"):
        # With the same system message also what the template writes behind it, up to the user's text.
        assert cached(chat(served, tenant, RULES)) == whole(served, head + 2 + len("user\n"))
        assert cached(chat(served, tenant, f"{RULES} Speak French.")) == whole(served, head)
    assert cached(chat(served, "a", "Something else.")) == whole(served, 1 + len("system\n"))


def test_a_tenants_continuation_is_its_own(served: Served) -> None:
    prompt = f"{RULES} My secret is 1234, keep it for me."
    complete(served, "a", prompt)
    before = whole(served, len(RULES))
    for other in ("b", "ops"):
        for guess in (prompt, prompt.replace("1234", "1235")):
            answer = complete(served, other, guess, cache_salt=guess[-20:])
            assert cached(answer) == before
            assert "diverged" not in missed(served, other, answer)
    assert cached(complete(served, "b", prompt)) == before
    assert cached(complete(served, "a", prompt)) == whole(served, len(prompt) - 1)
    assert cached(complete(served, "b", prompt)) == whole(served, len(prompt) - 1)


def test_a_right_guess_behind_a_public_prefix_is_told_as_a_wrong_one(served: Served) -> None:
    secret = f"{RULES} my number is 1234"
    told = []
    for guess in (secret, secret[:-1] + "5", f"{RULES} MY NUMBER IS 1234"):
        assert send(served, "ops", "POST", "/flush_cache").status_code == 200
        complete(served, "a", secret)
        answer = complete(served, "b", guess)
        explanation = explained(served, "b", answer)
        names = ("prompt_tokens", "reused", "missed", "diverged_at", "evicted_seconds_ago")
        told.append(
            (
                answer.headers["x-sapwood-cache"],
                answer.json()["usage"],
                [explanation[name] for name in names],
            )
        )
    assert told[1:] == told[:1] * 2


def test_answers_are_those_of_a_server_without_reuse(facts: FakeFacts, keys_file: Path, serve: Any) -> None:
    prompts = [RULES[:31], RULES, f"{RULES} And then?", f"{RULES} And then!", RULES[:40] + "?", "And then?"]

    def ask(served: Served, who: str) -> list[Any]:
        return [
            complete(served, who, prompt, max_tokens=9, logprobs=2).json()["choices"]
            for prompt in [*prompts, *prompts]
        ]

    off = FakeFacts(page_size=facts.page_size, policies={**POLICIES, "prefix_index": "none"})
    with serve(off) as cold:
        expected = [
            cold.http.post(
                "/v1/completions",
                json={"prompt": prompt, "max_tokens": 9, "logprobs": 2, "temperature": 0},
            ).json()["choices"]
            for prompt in [*prompts, *prompts]
        ]
    with serve(facts, api_keys=keys_file) as served:
        assert [ask(served, who) for who in ("a", "b", "a")] == [expected] * 3


def test_it_survives_a_flood_and_a_flush(served: Served) -> None:
    held = whole(served, len(RULES))
    for n in range(40):
        complete(served, "a", f"{n:04}" * 60)
    assert cached(complete(served, "b", f"{RULES} after the flood")) == held
    for how in ("GET", "POST"):
        flushed = send(served, "ops", how, "/flush_cache")
        assert flushed.status_code == 200
        assert "public prefixes" in flushed.text, "nobody runs: why are tokens kept?"
    assert cached(complete(served, "b", f"{RULES} after the flood")) == held


def test_it_counts_towards_nobodys_quota(keys_file: Path, serve: Any) -> None:
    keys_file.write_text(keys_file.read_text().replace('key = "sk-a"', 'key = "sk-a"\nmax_hot_tokens = 10'))
    with serve(api_keys=keys_file) as served:
        prompt = f"{RULES} 0123456789 and more"
        complete(served, "a", prompt)
        assert cached(complete(served, "a", prompt)) == len(RULES) + 10


def test_what_pins_may_hold_is_what_public_prefixes_leave_of_it(served: Served) -> None:
    budget = send(served, "ops", "GET", "/v1/cache/pins").json()["budget_tokens"]
    tokens = len(RULES) + 1 + len("system\n") + len(RULES) + 2 + len("user\n")
    assert budget in range(400 - tokens, 400 - tokens + 2 * served.built.facts.page_size)
    refused = send(served, "ops", "POST", "/v1/cache/pins", {"prompt": "p" * 399})
    assert refused.json()["error"]["code"] == "pin_budget_exceeded"


def test_a_request_that_may_not_read_the_cache_reads_no_public_prefix_either(served: Served) -> None:
    prompt = f"{RULES} and on"
    body = {"text": prompt, "sampling_params": {"max_new_tokens": 1}}
    scored = send(served, "a", "POST", "/generate", {**body, "return_logprob": True, "logprob_start_len": 0})
    assert scored.status_code == 200, scored.text
    assert cached(complete(served, "a", prompt)) == whole(served, len(prompt) - 1), "what it computed is kept"
    assert cached(complete(served, "b", prompt)) == whole(served, len(RULES))


# ---- the file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[public_prefix]\nname = 'x'", "written as [[public_prefix]]"),
        ("[[public_prefix]]\nfile = 'rules.txt'", "[[public_prefix]] number 1: name is 'None'"),
        ("[[public_prefix]]\nname = 'a b'\nfile = 'rules.txt'", "name is 'a b'"),
        ("[[public_prefix]]\nname = 'x'", "file must be the path of a text"),
        ("[[public_prefix]]\nname = 'x'\nfile = 7", "file must be the path of a text"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'none.txt'", "none.txt: No such file"),
        ("[[public_prefix]]\nname = 'x'\nfile = '.'", "Is a directory"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'a\\u0000b'".replace("'", '"'), "null byte"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'empty.txt'", "empty.txt is empty"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'latin.txt'", "cannot read the public prefix"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'rules.txt'\nrole = 'user'", "role is 'user'"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'rules.txt'\ntext = 'y'", "there is no field 'text'"),
        ("[[public_prefix]]\nname = 'x'\nfile = 'rules.txt'\n" * 2, "two public prefixes are called 'x'"),
        (
            "".join(f"[[public_prefix]]\nname = 'x{n}'\nfile = 'rules.txt'\n" for n in range(17)),
            "there are 17 public prefixes; there may be 16",
        ),
    ],
)
def test_a_table_that_is_wrong_is_told_at_start(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "rules.txt").write_text(RULES)
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    path = tmp_path / "tenants.toml"
    path.write_text(FILE + table)
    with pytest.raises(UsageError) as caught:
        load_tenants(path, {})
    assert said in caught.value.message
    assert "tenants.toml" in caught.value.message


def unserved(keys_file: Path, facts: FakeFacts) -> UsageError:
    """What a server says that ends instead of serving."""
    built = build_fake(facts)
    server = Server(lambda: built, ServerConfig(port=0, api_keys=keys_file), print)
    with pytest.raises(UsageError) as caught:
        server.run()
    assert not built.loop.alive, "nothing is left running"
    assert caught.value.hint is not None
    return caught.value


@pytest.mark.parametrize(
    ("facts_now", "said"),
    [
        (FakeFacts(pin_tokens=50), "together with pins they may hold 50"),
        (FakeFacts(page_size=128), "'raw' has 72 tokens, less than one page"),
        (FakeFacts(policies={**POLICIES, "prefix_index": "none"}), "prefixes are not reused"),
        (FakeFacts(max_context=60), "public prefix 'raw' cannot be computed"),
    ],
)
def test_what_cannot_be_held_is_refused_at_start_with_a_hint(
    keys_file: Path, facts_now: FakeFacts, said: str
) -> None:
    assert said in unserved(keys_file, facts_now).message


def test_a_template_that_leaves_the_system_message_out_is_told_with_a_way_out() -> None:
    built = build_fake()
    template = ChatTemplate.for_tokenizer(
        "{% for m in messages[1:] %}{{ m.content }}{% endfor %}", built.tokenizer
    )
    with pytest.raises(UsageError, match="does not begin with the system message") as caught:
        PublicText("rules", RULES).tokens(built.tokenizer, template)
    assert caught.value.hint is not None
    assert 'role = "raw"' in caught.value.hint
    built.loop.shutdown()
