"""Prompts that are scored, over HTTP: as lm-eval sends them, in vLLM's words and in SGLang's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.conftest import Served

CONTEXTS = ["The capital of France is the city of", "Water boils when it is heated to one"]
CHOICES = [" Paris", " Rome, as all know", " hundred", "?"]
PROMPTS = [list((context + choice).encode()) for context in CONTEXTS for choice in CHOICES]

Json = dict[str, Any]


def post(served: Served, path: str = "/v1/completions", **body: Any) -> Json:
    answer = served.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    told: Json = answer.json()
    return told


def lm_eval(served: Served, prompts: list[list[int]], **others: Any) -> Json:
    """The body of lm-eval's `local-completions` for loglikelihoods."""
    return post(
        served,
        model="toy",
        prompt=prompts,
        temperature=0,
        max_tokens=1,
        logprobs=1,
        seed=1234,
        echo=True,
        **others,
    )


def scores(answer: Json) -> list[tuple[float, bool]]:
    """What lm-eval makes of it: each choice's likelihood, and whether it is what greedy draws would give."""
    read = []
    for choice, prompt in zip(sorted(answer["choices"], key=lambda c: int(c["index"])), PROMPTS, strict=True):
        context = next(len(each) for each in CONTEXTS if bytes(prompt).startswith(each.encode()))
        listed = choice["logprobs"]
        tokens, tops = listed["token_logprobs"][context:-1], listed["top_logprobs"][context:-1]
        assert len(tokens) == len(prompt) - context
        pairs = zip(tokens, tops, strict=True)
        read.append((sum(tokens), all(own == max(top.values()) for own, top in pairs)))
    return read


def cached(answer: Json) -> int:
    count: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def choices_of(answer: Json) -> list[Json]:
    choices: list[Json] = answer["choices"]
    return choices


def test_multiple_choices_are_scored_alike_cold_and_warm_and_share_their_contexts(served: Served) -> None:
    alone = []
    for prompt in PROMPTS:
        assert served.http.post("/flush_cache").status_code == 200
        alone += choices_of(lm_eval(served, [prompt]))
    assert served.http.post("/flush_cache").status_code == 200
    cold, warm = lm_eval(served, PROMPTS), lm_eval(served, PROMPTS)
    for answer in (cold, warm):
        assert [choice["logprobs"] for choice in choices_of(answer)] == [each["logprobs"] for each in alone]
    assert scores(cold) == scores(warm)
    # Of a context every token but the last, off which a choice's first is scored, is computed for one of four.
    assert cached(cold) >= sum(3 * (len(context) - 1) for context in CONTEXTS)
    assert cached(warm) == sum(len(prompt) - 1 for prompt in PROMPTS)


def test_a_context_that_is_scored_with_another_choice_later_is_a_hit(served: Served) -> None:
    lm_eval(served, PROMPTS[:1])
    assert cached(lm_eval(served, PROMPTS[1:2])) >= len(CONTEXTS[0])


def test_a_greedy_choice_is_known_by_the_very_same_float(served: Served) -> None:
    drawn = post(served, prompt=CONTEXTS[0], temperature=0, max_tokens=6, return_token_ids=True)
    (choice,) = choices_of(drawn)
    prompt = list(CONTEXTS[0].encode())
    for _ in range(2):
        (scored,) = choices_of(lm_eval(served, [prompt + choice["token_ids"]]))
        listed = scored["logprobs"]
        for own, top in zip(
            listed["token_logprobs"][len(prompt) : -1], listed["top_logprobs"][len(prompt) : -1], strict=True
        ):
            assert own == max(top.values())


# ---- vLLM ------------------------------------------------------------------------------------------------


def test_prompt_logprobs_are_those_of_an_echo(served: Served) -> None:
    echoed = lm_eval(served, [PROMPTS[0]])["choices"][0]["logprobs"]["token_logprobs"][:-1]
    for _ in range(2):
        answer = post(served, prompt=PROMPTS[0], max_tokens=1, prompt_logprobs=2)
        (choice,) = choices_of(answer)
        first, *others = choice["prompt_logprobs"]
        assert first is None
        assert [told[str(token)]["logprob"] for told, token in zip(others, PROMPTS[0][1:], strict=True)] == (
            echoed[1:]
        )
        for told in others:
            ranked = [entry for entry in told.values() if entry["rank"] is not None]
            assert [entry["rank"] for entry in ranked] == [1, 2]
            assert ranked[0]["logprob"] >= ranked[1]["logprob"]
            assert all(set(entry) == {"logprob", "rank", "decoded_token"} for entry in told.values())
        assert "token_ids" not in choice
    assert cached(answer) == len(PROMPTS[0]) - 1


def test_an_echo_keeps_its_own_number_of_top_entries(served: Served) -> None:
    body: Json = {"prompt": "abcdef", "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    plain = choices_of(post(served, **body))[0]
    both = choices_of(post(served, **body, prompt_logprobs=4))[0]
    assert both["logprobs"] == plain["logprobs"]
    assert all(len(told) >= 4 for told in both["prompt_logprobs"][1:])


def test_a_chat_tells_its_prompts_scores_beside_its_choices(served: Served) -> None:
    served.script(b"ok")
    messages = [{"role": "user", "content": "hi"}]
    asked = {"messages": messages, "n": 2, "prompt_logprobs": 0, "return_token_ids": True}
    prompt = served.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    for _ in range(2):
        answer = post(served, "/v1/chat/completions", **asked)
        assert answer["prompt_token_ids"] == prompt
        first, *others = answer["prompt_logprobs"]
        assert (first, [list(told) for told in others]) == (None, [[str(token)] for token in prompt[1:]])
        assert [choice["token_ids"] for choice in answer["choices"]] == [[*b"ok", 256]] * 2
        assert [choice["message"]["content"] for choice in answer["choices"]] == ["ok"] * 2
    assert cached(answer) == len(prompt) - 1


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": ["ab", "cde"], "n": 2, "stop": "é!"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "n": 2}),
    ],
)
def test_streamed_token_ids_are_all_of_the_answer(served: Served, path: str, asked: Json) -> None:
    served.script("aé!é".encode())
    body = {**asked, "max_tokens": 4, "return_token_ids": True}
    whole = post(served, path, **body)
    answer = served.http.post(path, json={**body, "stream": True})
    frames = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    ids: dict[int, list[int]] = {}
    prompts: dict[int, list[list[int]]] = {}
    for chunk in map(json.loads, frames[:-1]):
        if "prompt_token_ids" in chunk:
            prompts.setdefault(0, []).append(chunk["prompt_token_ids"])
        for choice in chunk["choices"]:
            ids.setdefault(choice["index"], []).extend(choice["token_ids"])
            if "prompt_token_ids" in choice:
                prompts.setdefault(choice["index"], []).append(choice["prompt_token_ids"])
    assert [ids[choice["index"]] for choice in whole["choices"]] == [c["token_ids"] for c in whole["choices"]]
    if "prompt_token_ids" in whole:
        assert prompts == {0: [whole["prompt_token_ids"]]}
    else:
        assert prompts == {choice["index"]: [choice["prompt_token_ids"]] for choice in whole["choices"]}


def test_prompt_logprobs_cannot_be_streamed(served: Served) -> None:
    for path, asked in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ):
        answer = served.http.post(path, json={**asked, "prompt_logprobs": 1, "stream": True})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt_logprobs"


@pytest.mark.parametrize("value", [-1, 21, 2**70, 1.5, "1", [], True, {}])
def test_other_values_are_refused(served: Served, value: Any) -> None:
    answer = served.http.post("/v1/completions", json={"prompt": "a", "prompt_logprobs": value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt_logprobs"


# ---- SGLang ----------------------------------------------------------------------------------------------


def test_what_stands_before_logprob_start_len_is_reused(served: Served) -> None:
    ids = list(b"something that is cached already")
    sampling = {"max_new_tokens": 1, "temperature": 0}
    plain = post(served, "/generate", input_ids=ids, sampling_params=sampling)
    assert plain["meta_info"]["cached_tokens"] == 0
    asked = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, "top_logprobs_num": 1}
    late = post(served, "/generate", **asked, logprob_start_len=20)["meta_info"]
    assert late["cached_tokens"] == 20
    whole = post(served, "/generate", **asked, logprob_start_len=0)["meta_info"]
    assert whole["cached_tokens"] == 0
    assert whole["input_token_logprobs"][21:] == late["input_token_logprobs"][1:]
    again = post(served, "/generate", **asked, logprob_start_len=0)["meta_info"]
    assert again["cached_tokens"] == len(ids) - 1
    for name in ("input_token_logprobs", "input_top_logprobs"):
        assert again[name] == whole[name]
