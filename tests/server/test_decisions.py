"""`/v1/decisions`, through the official SDK: its answers, what they cost, and that reuse changes none of them."""

from __future__ import annotations

import json
import math
import random
import re
import runpy
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib.decisions_tool_runner import DecisionsToolRunner
from starlette.testclient import TestClient

from model import tiny
from sapwood.cache import PrefixCache
from sapwood.chat import Tokenizer
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig, ServerConfig
from sapwood.engine import Built, Engine, ModelFacts, build_engine
from sapwood.model.fake import FakeRunner
from sapwood.plan import StepPlan
from sapwood.server import create_app
from sapwood.types import Event, PromptScored, Request, SamplingParams, SeqId
from server.conftest import Clock, Served, serving
from server.fakes import EOS, TEMPLATE, VOCAB, FakeFacts
from server.test_served import serving_default_model

PATH = "/v1/decisions"
EXAMPLE = Path(__file__).parents[2] / "examples" / "decisions.py"
URGENT: Any = {"type": "predicate", "name": "urgent", "instructions": "Does it need an answer today?"}
TEAM: Any = {
    "type": "choice",
    "instructions": "Which team is to see to it?",
    "choices": [{"value": "ops", "description": "infra"}, {"value": "opsec"}, {"value": True}],
}
TONE: Any = {"type": "score", "instructions": "Its tone", "levels": [{"label": "cold"}, {"label": "warm"}]}
QUESTIONS: Any = [URGENT, TEAM, TONE]
LONG_LIVED: Any = {
    "type": "input_text",
    "text": "a",
    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
}
REPORT = "The pump of line 3 is fed by F7, which has blown twice. " * 30


def decide(served: Served, *questions: Any, given: Any = REPORT, **extra: Any) -> Any:
    asked = list(questions) or QUESTIONS
    return served.openai.decisions.create(model="toy", input=given, questions=asked, extra_body=extra)


def cached(decision: Any) -> int:
    """Its cached tokens, once it is seen that its numbers agree."""
    usage = decision.usage
    details = usage.input_tokens_details
    assert 0 <= details.cached_tokens + details.cache_write_tokens <= usage.input_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    return int(details.cached_tokens)


# ---- answers -----------------------------------------------------------------------------------------------


def test_each_question_is_answered_in_its_place_and_kind(served: Served) -> None:
    decision = decide(served, TONE, URGENT, TEAM, URGENT)
    tone, urgent, team, again = decision.answers
    assert decision.model == "toy"
    assert (tone.type, urgent.type, team.type) == ("score", "predicate", "choice")
    assert (tone.name, urgent.name, team.name) == (None, "urgent", None)
    assert again == urgent
    assert 0.0 < urgent.probability < 1.0
    assert [p.value for p in team.probabilities] == ["ops", "opsec", True]
    assert team.choice == max(team.probabilities, key=lambda p: p.probability).value
    assert [(p.value, p.label) for p in tone.probabilities] == [(0, "cold"), (1, "warm")]
    assert tone.score == pytest.approx(tone.probabilities[1].probability)
    for answer in (team, tone):
        assert math.fsum(p.probability for p in answer.probabilities) == pytest.approx(1.0, abs=1e-12)
        assert answer.confidence == max(p.probability for p in answer.probabilities)


def test_the_sdks_own_runner_of_decisions_takes_the_answers(served: Served) -> None:
    tried: list[str] = []
    done: Any = {"id": "done", "description": "nothing is left to do", "done": True}
    change: Any = {
        "id": "change",
        "description": "change the fuse",
        "execute": lambda: tried.append("change"),
    }
    runner = DecisionsToolRunner(
        observe=lambda: "the fuse is new" if tried else "the fuse is blown",
        candidates=lambda _seen: [done] if tried else [change, done],
    )
    result = runner.run(served.openai, {"model": "toy", "input": "Mend it."})
    (decision,) = result["decisions"]
    assert result["status"] == "unverified"
    assert result["completed_candidate_ids"] == tried
    assert decision.answers[0].type == "choice"
    assert decision.answers[0].choice == (tried[0] if tried else "done")


def test_an_input_may_be_a_conversation_with_tools(served: Served) -> None:
    given = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_json", "data": {"fuse": "F7"}}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "blown"},
    ]
    assert 0.0 < decide(served, URGENT, given=given).answers[0].probability < 1.0


# ---- cost --------------------------------------------------------------------------------------------------


def test_the_input_is_computed_once_for_all_questions(served: Served) -> None:
    runner = served.built.runner
    questions = [{**URGENT, "instructions": f"{i}: is line {i} the one that needs it?"} for i in range(20)]
    before = runner.computed_tokens
    first = decide(served, *questions)
    cold = runner.computed_tokens - before
    # Of each answer its tokens with the end, and at most the token before them, which tells the first one's odds.
    answers = len(questions) * (len("Yes") + len("No") + 2 + 2)
    assert len(REPORT) < cold <= first.usage.input_tokens + answers
    assert cached(first) == 0
    again = decide(served, *questions)
    assert runner.computed_tokens - before - cold <= answers
    assert len(REPORT) < cached(again) < again.usage.input_tokens
    assert again.answers == first.answers


def test_other_questions_read_the_input_from_the_cache(served: Served) -> None:
    assert cached(decide(served, URGENT)) == 0
    assert cached(decide(served, TONE)) == cached(decide(served, TEAM)) > len(REPORT)


@pytest.mark.parametrize("other", [{"given": "x" + REPORT}, {"cache_salt": "s"}])
def test_another_input_or_salt_reads_none_of_it(served: Served, other: Any) -> None:
    decide(served)
    # What is left is what the template writes before the input.
    assert cached(decide(served, **other)) < 20


def test_the_explanation_and_the_header_tell_of_all_prompts(served: Served) -> None:
    answer = served.http.post(PATH, json={"input": REPORT, "questions": [URGENT, TONE]})
    told = served.http.get(f"/v1/requests/{answer.headers['x-request-id']}/cache").json()
    assert len(told["requests"]) == 4
    assert (
        sum(told["reused"].values()) + sum(told["missed"].values()) == told["prompt_tokens"] > 4 * len(REPORT)
    )
    assert answer.headers["x-sapwood-cache"].startswith(f"reused={told['reused']['hot']};")


def test_the_place_where_an_input_diverged_is_found_in_its_message(served: Served) -> None:
    decide(served, URGENT, given=f"{REPORT}one")
    answer = served.http.post(PATH, json={"input": f"{REPORT}two", "questions": [URGENT]})
    told = served.http.get(f"/v1/requests/{answer.headers['x-request-id']}/cache").json()
    assert told["diverged_at"]["message"] == 0
    assert "[HERE]two" in told["diverged_at"]["text"]


def test_the_place_is_found_also_where_a_thought_had_to_be_closed() -> None:
    opens = TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}{# </think> #}")
    with serving(template=opens) as served:
        decide(served, URGENT, given="a report of pumps")
        id = served.http.post(
            PATH, json={"model": "toy", "input": "a report of pipes", "questions": [URGENT]}
        ).headers["x-request-id"]
        place = served.http.get(f"/v1/requests/{id}/cache").json()["diverged_at"]
    assert (place["message"], place["text"]) == (0, "ort of p[HERE]ipes\n\nDo")


def test_a_call_of_four_hundred_questions_is_answered(served: Served) -> None:
    questions = [{"type": "predicate", "instructions": f"Is {i} in it?"} for i in range(400)]
    answers = decide(served, *questions, given="1, 22, 333").answers
    assert len(answers) == 400
    assert answers[17] == decide(served, questions[17], given="1, 22, 333").answers[0]


# ---- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"input": "x" * 5000}, 400, "input"),
        ({"input": "x" * 3_000_000}, 400, "input"),
        ({"questions": [{**URGENT, "instructions": "x" * 5_000_000}]}, 400, "questions"),
        ({"questions": []}, 400, "questions"),
        ({"stream": True}, 400, "stream"),
        ({"priority": 3}, 400, "priority"),
        ({"prompt_cache_key": 3}, 400, "prompt_cache_key"),
        ({"prompt_cache_options": {"mode": "no"}}, 400, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": "12h"}}, 400, "prompt_cache_options.ttl"),
        ({"input": [{"role": "user", "content": [LONG_LIVED]}]}, 400, "prompt_cache_options.ttl"),
    ],
)
def test_what_cannot_be_served_is_told_in_openais_words(
    served: Served, fields: Any, status: int, param: str
) -> None:
    answer = served.http.post(PATH, json={"model": "toy", "input": "a", "questions": [URGENT], **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert answer.json()["error"]["message"]


def test_more_tokens_than_a_call_may_hold_are_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.server.decisions_routes.MOST_TOKENS", 5000)
    body = {"input": "x" * 1000, "questions": [URGENT, URGENT]}
    assert served.http.post(PATH, json=body).status_code == 200
    answer = served.http.post(PATH, json={**body, "questions": [URGENT, URGENT, URGENT]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "questions")
    assert "split the call" in answer.json()["error"]["message"]


def test_altered_bodies_are_answered_or_refused_never_a_failure(served: Served) -> None:
    dice = random.Random(5)
    junk: list[Any] = [None, True, 0, -1, 1e308, 2**70, "", "\0", "x" * 300, [], {}, [[]], {"type": "choice"}]
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]
    seen = []
    for _ in range(80):
        body = json.loads(json.dumps({"model": "toy", "input": given, "questions": QUESTIONS}))
        place = body
        while isinstance(place, dict | list) and place:
            key: Any = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if dice.random() < 0.4 or not isinstance(place[key], dict | list):
                place[key] = dice.choice(junk)
                break
            place = place[key]
        answer = served.http.post(PATH, json=body)
        assert answer.status_code in (200, 400, 404), (body, answer.text)
        assert answer.status_code == 200 or answer.json()["error"]["message"]
        seen.append(answer.status_code)
    assert {200, 400} <= set(seen)


def test_tenants_share_no_input_and_need_a_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[tenant]]\nname = "a"\nkey = "sk-a"\n[[tenant]]\nname = "b"\nkey = "sk-b"\n')
    with serving(api_keys=keys) as locked:
        body = {"input": REPORT, "questions": [URGENT]}

        def ask(key: str) -> Any:
            return locked.http.post(PATH, json=body, headers={"authorization": f"Bearer {key}"})

        read = [
            ask(key).json()["usage"]["input_tokens_details"]["cached_tokens"]
            for key in ("sk-a", "sk-b", "sk-a")
        ]
        assert read[:2] == [0, 0]
        assert read[2] > len(REPORT)
        assert ask("sk-c").status_code == 401


# ---- the provider's rules ----------------------------------------------------------------------------------


def written(decision: Any) -> int:
    return int(decision.usage.input_tokens_details.cache_write_tokens)


def test_the_input_is_read_in_whole_steps(fresh: Served) -> None:
    given = "a" * 1500
    assert cached(decide(fresh, URGENT, given=given)) == 0
    later = decide(fresh, TONE, given=given)
    assert (cached(later), written(later)) == (1408, 0)
    assert cached(decide(fresh, given="b" * 900)) == cached(decide(fresh, given="b" * 900)) == 0


def test_another_key_reads_nothing(fresh: Served) -> None:
    given = "a" * 1500
    reads = [cached(decide(fresh, given=given, prompt_cache_key=key)) for key in ("one", "two", "one")]
    assert reads == [0, 0, 1408]


def test_with_options_the_end_of_the_input_is_a_boundary_that_lives_half_an_hour(
    fresh: Served, clock: Clock
) -> None:
    given, options = "a" * 1500, {"mode": "implicit"}
    first = decide(fresh, URGENT, given=given, prompt_cache_options=options)
    second = decide(fresh, TONE, given=given, prompt_cache_options=options)
    assert (cached(first), written(second)) == (0, 0)
    assert written(first) == cached(second) > 1500
    clock.now += 1801.0
    assert cached(decide(fresh, URGENT, given=given, prompt_cache_options=options)) == 0


def test_a_breakpoint_is_the_exact_end_of_what_is_read(fresh: Served) -> None:
    def given(rest: str) -> Any:
        marked = {"type": "input_text", "text": "a" * 1500, "prompt_cache_breakpoint": {"mode": "explicit"}}
        return [{"role": "user", "content": [marked, {"type": "input_text", "text": rest}]}]

    options = {"mode": "explicit"}
    first = decide(fresh, given=given("one"), prompt_cache_options=options)
    second = decide(fresh, given=given("two"), prompt_cache_options=options)
    assert written(first) == cached(second) == len("user\n") + 1 + 1500
    unmarked = decide(fresh, given="a" * 1500, prompt_cache_options=options)
    assert (cached(unmarked), written(unmarked)) == (0, 0)


# ---- exactness ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_qwen3(tmp_path_factory.mktemp("qwen3"), max_position_embeddings=2048)


@contextmanager
def clients(
    folder: Path, tokens: int, cache: CacheConfig, **scheduler: Any
) -> Iterator[tuple[TestClient, Built]]:
    """A client of the real engine with a pool of so many tokens."""
    per_token = 2 * 2 * 2 * 2 * 32  # Keys and values of two layers, two heads of 32 numbers of two bytes.
    model = ModelConfig(str(folder), kv_memory=tokens * per_token)
    built = build_engine(model, cache, SchedulerConfig(**scheduler), paranoid=True)
    try:
        assert built.facts.capacity_pages * built.facts.page_size == tokens
        with TestClient(create_app(built, ServerConfig())) as client:
            yield client, built
    finally:
        built.loop.shutdown()


def answers(client: TestClient, questions: Any, given: str = REPORT[:400]) -> Any:
    told = client.post(PATH, json={"input": given, "questions": questions})
    assert told.status_code == 200, told.text
    return told.json()["answers"]


@pytest.fixture(scope="module")
def truth(tiny_model: Path) -> Any:
    """Answers to questions asked one by one, with reuse off."""
    with clients(tiny_model, 4096, CacheConfig(prefix_index="none")) as (client, _):
        return [answers(client, [question])[0] for question in QUESTIONS]


@pytest.mark.parametrize(
    ("tokens", "cache", "scheduler"),
    [
        (4096, CacheConfig(), {}),
        (4096, CacheConfig(), {"chunk_tokens": 7, "max_running": 3}),
        (4096, CacheConfig(page_size=16, prefix_index="blocks"), {}),
        (4096, CacheConfig(prefix_index="none"), {}),
        (640, CacheConfig(), {"chunk_tokens": 64}),
        (640, CacheConfig(page_size=16), {"chunk_tokens": 64}),
    ],
    ids=["radix", "small chunks", "blocks", "none", "small pool", "small pool of pages"],
)
def test_probabilities_are_equal_to_the_bit_however_they_are_computed(
    tiny_model: Path, truth: Any, tokens: int, cache: CacheConfig, scheduler: Any
) -> None:
    with clients(tiny_model, tokens, cache, **scheduler) as (client, built):
        cold, warm = answers(client, QUESTIONS), answers(client, QUESTIONS)
        assert cold == truth
        assert warm == truth
        answers(client, QUESTIONS, given=REPORT[400:800])
        assert answers(client, QUESTIONS) == truth
        if tokens < 1000:
            assert built.loop.stats().evicted_tokens > 0


def test_a_probability_is_that_of_the_answers_tokens_and_its_end(tiny_model: Path) -> None:
    """Against the logprobs that another route tells of prompts put together here."""
    with clients(tiny_model, 4096, CacheConfig()) as (client, built):
        (told,) = answers(client, [URGENT], given="A fuse is blown.")

        def score(answer: str) -> float:
            tokens = asked(built.tokenizer, "A fuse is blown.", "Does it need an answer today?", answer)
            body = {"prompt": tokens, "echo": True, "logprobs": 0, "max_tokens": 0}
            (choice,) = client.post("/v1/completions", json=body).json()["choices"]
            count = len(built.tokenizer.encode(answer)) + 1
            return math.fsum(choice["logprobs"]["token_logprobs"][-count:])

        assert told["probability"] == pytest.approx(1 / (1 + math.exp(score("No") - score("Yes"))), abs=1e-15)


def asked(tokenizer: Tokenizer, given: str, question: str, answer: str) -> list[int]:
    start = tokenizer.encode(f"<|im_start|>user\n{given}\n\n", special=True)
    end = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", special=True)
    words = tokenizer.encode(f"{question} (Yes or No; nothing else)")
    return [*start, *words, *end, *tokenizer.encode(answer), 2]


def test_preempted_prompts_are_scored_as_the_model_does_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of a call, beside older ones whose answers grow until the pool is full."""
    caught: list[Request] = []
    generate = served.built.loop.generate

    def catching(request: Request) -> AsyncIterator[Event]:
        caught.append(request)
        return generate(request)

    monkeypatch.setattr(served.built.loop, "generate", catching)
    decide(served, TEAM, given="a fuse")
    pool = max(len(request.prompt) for request in caught) + 20
    runner = FakeRunner(VOCAB, 1, pool)
    engine = Engine(
        runner,
        PrefixCache(pool, CacheConfig()),
        SchedulerConfig(chunk_tokens=8),
        ModelFacts("toy", 4096, VOCAB, (EOS,)),
        served.built.loop._engine._detokenizer,
        paranoid=True,
    )
    grows = SamplingParams(max_tokens=40, ignore_eos=True)
    for i in range(2):
        engine.add(Request(f"older {i}", (65 + i,) * 4, grows), 0.0)
    for request in caught:
        engine.add(request, 0.0)
    scored: dict[str, PromptScored] = {}
    while engine.busy:
        for event in engine.step(0.0):
            if isinstance(event, PromptScored):
                scored[event.request_id] = event
    assert engine.stats().preemptions > 0
    for request in caught:
        start = request.params.prompt_logprobs_start
        assert scored[request.id].logprobs[start:] == runner.score(request.prompt, 0)[start - 1 :]


def test_a_small_request_does_not_wait_for_all_answers_of_a_large_call() -> None:
    choices = [{"value": f"{n}", "description": ""} for n in range(100)]
    questions = [{"type": "choice", "instructions": f"{n}?", "choices": choices} for n in range(8)]
    began = threading.Event()

    def step_began(_plan: StepPlan) -> frozenset[SeqId]:
        began.set()
        return frozenset()

    with serving(FakeFacts(capacity_pages=32768)) as served, ThreadPoolExecutor(1) as pool:
        served.built.runner.hook = step_began
        body = {"model": "toy", "input": "i" * 100, "questions": questions}
        large = pool.submit(served.http.post, "/v1/decisions", json=body)
        assert began.wait(30)
        small = served.http.post("/v1/completions", json={"prompt": "a small one", "max_tokens": 1})
        assert small.status_code == 200
        assert not large.done()
        assert large.result().status_code == 200


# ---- the default model -------------------------------------------------------------------------------------


def test_the_default_model_tells_an_urgent_message_from_a_friendly_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    down = "From: Anna\nThe web shop has been down since this morning and customers cannot pay. Please fix it now!"
    lunch = "From: Tom\nThanks for the lovely lunch last week. The soup was very good. See you next month."
    questions: Any = [
        {"type": "predicate", "instructions": "Is this message urgent?"},
        {"type": "predicate", "instructions": "The message is about a web shop."},
    ]
    with (
        serving_default_model("--kv-memory", "64MiB") as (_, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):
        model = "smollm2-135m"
        told = [
            client.decisions.create(model=model, input=text, questions=questions)
            for text in (down, lunch, down)
        ]
        capsys.readouterr()
        monkeypatch.syspath_prepend(EXAMPLE.parent)
        monkeypatch.setattr("sys.argv", [str(EXAMPLE), url])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown[5:9]] == ["urgent", "team", "tone", "shop"]
    assert shown[:3] == shown[5:8]
    first, second = (re.search(r", (\d+) of them cached", shown[line]) for line in (4, 10))
    assert first is not None
    assert second is not None
    assert int(second[1]) > int(first[1])
    urgent, shop = ([answer.probability for answer in (d.answers[i] for d in told)] for i in range(2))  # type: ignore[union-attr]
    assert urgent[0] > 0.6 > urgent[1]
    assert shop[0] > 0.6 > shop[1]
    assert told[2].answers == told[0].answers
    assert told[2].usage.input_tokens_details.cached_tokens > 30
