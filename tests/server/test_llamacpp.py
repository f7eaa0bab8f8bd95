"""llama.cpp's native routes, and its `timings` on OpenAI-shaped answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from server.conftest import Served

GREEDY = {"temperature": 0, "n_predict": 6, "ignore_eos": True}


def complete(served: Served, **body: Any) -> Any:
    answer = served.http.post("/completion", json={**GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def frames(served: Served, **body: Any) -> list[Any]:
    answer = served.http.post("/completion", json={**GREEDY, **body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]


def test_a_prompt_is_answered_as_the_openai_route_answers_it(served: Served) -> None:
    theirs = served.openai.completions.create(
        model="toy", prompt="the sky is", temperature=0, max_tokens=6, extra_body={"ignore_eos": True}
    )
    prompts: list[Any] = ["the sky is", list(b"the sky is"), ["the ", *b"sky", " is"], [*b"the", " sky is"]]
    ids = []
    for prompt in prompts:
        ours = complete(served, prompt=prompt, return_tokens=True)
        assert ours["content"] == theirs.choices[0].text
        assert (ours["tokens_evaluated"], ours["tokens_predicted"], ours["tokens_cached"]) == (10, 6, 16)
        ids.append(ours["tokens"])
    assert len(ids[0]) == 6
    assert ids == [ids[0]] * 4


def test_counts_are_right_cold_warm_and_with_the_cache_left_aside(served: Served) -> None:
    def counts(**fields: Any) -> tuple[int, int, int]:
        timings = complete(served, prompt="a prompt of some length", **fields)["timings"]
        return timings["cache_n"], timings["prompt_n"], timings["predicted_n"]

    assert counts() == (0, 23, 6)
    assert counts() == (22, 1, 6)
    assert counts(cache_prompt=False) == (0, 23, 6)
    assert counts(cache_prompt=True) == (22, 1, 6)


def test_no_tokens_only_fill_the_cache(served: Served) -> None:
    filled = complete(served, prompt="warm me", n_predict=0)
    assert (filled["content"], filled["tokens_predicted"], filled["stop_type"]) == ("", 0, "limit")
    assert filled["timings"]["predicted_n"] == 0
    assert complete(served, prompt="warm me please")["timings"]["cache_n"] == 7


def test_without_a_limit_an_answer_ends_where_the_context_does(served: Served) -> None:
    for limit in (-1, None, 100_000):
        ended = complete(served, prompt=[65] * 4090, n_predict=limit)
        assert (ended["tokens_predicted"], ended["stop_type"]) == (6, "limit")


def test_what_stopped_an_answer_is_told(served: Served) -> None:
    def ending(**fields: Any) -> tuple[str, str, str]:
        answer = complete(served, prompt="p", ignore_eos=False, n_predict=-1, **fields)
        return answer["content"], answer["stop_type"], answer["stopping_word"]

    served.script("grün, blau".encode())
    assert ending(stop=["zz", ", "]) == ("grün", "word", ", ")
    assert ending() == ("grün, blau", "eos", "")


def test_frames_join_to_the_whole_answer(served: Served) -> None:
    served.script("häst!?".encode())
    whole = complete(served, prompt="x", return_tokens=True)
    parts = frames(served, prompt="x", timings_per_token=True)
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert [part["stop"] for part in parts] == [False] * 6 + [True]
    assert [part["timings"]["predicted_n"] for part in parts] == [1, 2, 3, 4, 5, 6, 6]
    last = parts[-1]
    assert (last["tokens_evaluated"], last["tokens_predicted"]) == (1, 6)
    assert all("timings" not in part for part in frames(served, prompt="x")[:-1])


def test_several_prompts_are_a_list(served: Served) -> None:
    served.script(b"abcdef")
    answers = complete(served, prompt=["p", "q"])
    assert [(each["index"], each["content"]) for each in answers] == [(0, "abcdef"), (1, "abcdef")]
    mixed = complete(served, prompt=[["p", 1], "q"])
    assert [each["tokens_evaluated"] for each in mixed] == [2, 1]
    parts = frames(served, prompt=["p", "q"])
    for index in (0, 1):
        mine = [part for part in parts if part["index"] == index]
        assert "".join(part["content"] for part in mine) == "abcdef"
        assert [part["stop"] for part in mine][-1] is True


def test_probabilities_name_the_drawn_token_with_its_own_float(served: Served) -> None:
    answer = complete(served, prompt="x", n_probs=3, return_tokens=True)
    listed = answer["completion_probabilities"]
    assert [each["id"] for each in listed] == answer["tokens"]
    for each in listed:
        assert len(each["top_logprobs"]) == 3
        # Greedy: the drawn one is the likeliest.
        assert each["top_logprobs"][0]["logprob"] == each["logprob"]
    assert "completion_probabilities" not in complete(served, prompt="x")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"prompt": None}, "'prompt' is required"),
        ({"prompt": 3}, "'prompt' is 3"),
        ({"prompt": ""}, "'prompt' is empty"),
        ({"prompt": []}, "'prompt' holds 0 prompts"),
        ({"prompt": ["a", 259]}, "'prompt[1]' is 259"),
        ({"prompt": [["a"], {}]}, "'prompt[1]'"),
        ({"prompt": ["a", 1.5]}, "'prompt[1]' is 1.5"),
        ({"prompt": "a", "n_predict": "x"}, "'n_predict' is \"x\""),
        ({"prompt": "a", "n_predict": -7}, "'n_predict' is -7"),
        ({"prompt": "a", "temperature": -1}, "'temperature' is -1"),
        ({"prompt": "a", "repeat_penalty": 0}, "'repeat_penalty' is 0"),
        ({"prompt": "a", "grammar": "root ::= x"}, "'grammar' cannot be used"),
        ({"prompt": "a", "json_schema": 3}, "'json_schema' is 3"),
        ({"prompt": "a", "json_schema": {}, "grammar": 'root ::= "a"'}, "exclude each other"),
        ({"prompt": "a", "response_fields": ["a"] * 100}, "'response_fields' has 100 entries"),
        ({"prompt": "a", "response_fields": [1]}, "'response_fields[0]'"),
        ({"prompt": "a", "mirostat": 2}, "'mirostat' is 2"),
        ({"prompt": "a", "logit_bias": [[1]]}, "'logit_bias[0]'"),
        ({"prompt": "a", "logit_bias": [[1, True]]}, "'logit_bias[0]'"),
        ({"prompt": "a", "n_probs": 1000}, "'n_probs' is 1000"),
        ({"prompt": "a\0b"}, "'prompt'"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(served: Served, body: dict[str, Any], named: str) -> None:
    answer = served.http.post("/completion", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert named in error["message"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")


def test_a_prompt_too_long_has_a_type_of_its_own(served: Served) -> None:
    answer = served.http.post("/completion", json={"prompt": [65] * 4096})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "exceed_context_size_error"


def test_fields_without_a_meaning_here_are_named(served: Served) -> None:
    body = {"prompt": "a", "n_predict": 1, "id_slot": 3, "n_keep": 4, "n_cache_reuse": 256}
    answer = served.http.post("/completion", json=body)
    assert answer.headers["x-sapwood-ignored"] == "id_slot,n_cache_reuse,n_keep"


def test_slots_and_props_tell_the_truth(served: Served) -> None:
    assert served.http.get("/slots").json() == [{"id": 0, "n_ctx": 4096, "is_processing": False}]
    props = served.http.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["default_generation_settings"]["params"]["n_predict"] == -1


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_slots_cannot_be_saved_and_the_server_says_so(served: Served, action: str) -> None:
    answer = served.http.post(f"/slots/0?action={action}", json={"filename": "a.bin"})
    assert answer.status_code == 501
    assert answer.json()["error"]["code"] == 501
    assert "no slots" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a prompt"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a prompt"}]}),
    ],
)
def test_openai_answers_carry_timings_that_agree_with_their_usage(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    body = {**body, "max_tokens": 3, "ignore_eos": True}
    for _ in range(2):
        whole = served.http.post(path, json=body).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        text = served.http.post(path, json={**body, **options}).text
        events = [json.loads(line[6:]) for line in text.split("\n\n") if line and "[DONE]" not in line]
        finished = next(each for each in events if each["choices"] and each["choices"][0]["finish_reason"])
        assert finished["timings"]["predicted_n"] == 3
        for answer in (whole, events[-1]):
            usage, timings = answer["usage"], answer["timings"]
            assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
            assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
            assert timings["predicted_n"] == usage["completion_tokens"] == 3
            assert timings["prompt_ms"] >= 0
            assert timings["predicted_ms"] >= 0


def test_a_batch_of_openai_prompts_has_no_timings(served: Served) -> None:
    body = {"prompt": ["a", "b"], "max_tokens": 1}
    assert "timings" not in served.http.post("/v1/completions", json=body).json()


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ({"grammar": 'root ::= "a" ("b" | "c")'}, "a[bc]"),
        ({"json_schema": {"enum": [1, 22]}}, "1|22"),
        ({"json_schema": {"type": "boolean"}, "grammar": ""}, "true|false"),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(served: Served, form: dict[str, Any], shape: str) -> None:
    answer = complete(served, prompt="x", n_predict=50, temperature=1, seed=2, ignore_eos=False, **form)
    assert re.fullmatch(shape, answer["content"])
    assert answer["stop_type"] == "eos"


def test_an_empty_schema_is_any_json(served: Served) -> None:
    answer = complete(
        served, prompt="x", n_predict=2000, temperature=1, seed=2, ignore_eos=False, json_schema={}
    )
    json.loads(answer["content"])


def test_only_the_fields_that_were_asked_for_are_told(served: Served) -> None:
    fields = ["content", "generation_settings/n_predict", "timings", "none/such", "content/deeper"]
    whole = complete(served, prompt="x")
    some = complete(served, prompt="x", response_fields=fields)
    assert some.keys() == {"content", "n_predict", "timings"}
    assert (some["content"], some["n_predict"]) == (whole["content"], 6)
    *pieces, last = frames(served, prompt="x", response_fields=fields)
    assert last.keys() == {"content", "n_predict", "timings"}
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert all(piece["stop"] is False for piece in pieces)


def test_a_stream_tells_how_much_of_the_prompt_is_read(served: Served) -> None:
    complete(served, prompt="a prompt of some")
    told = frames(served, prompt="a prompt of some length", return_progress=True)
    progress = [frame.pop("prompt_progress") for frame in told if "prompt_progress" in frame]
    assert [(each["total"], each["cache"], each["processed"]) for each in progress] == [
        (23, 16, 16),
        (23, 16, 23),
    ]
    assert progress[1]["time_ms"] >= progress[0]["time_ms"] >= 0
    plain = frames(served, prompt="a prompt of some length")
    assert "".join(frame["content"] for frame in told) == "".join(frame["content"] for frame in plain)
    assert len(told) == len(plain) + 2
