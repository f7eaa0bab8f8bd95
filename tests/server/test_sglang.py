"""SGLang's native routes, as its clients and benchmarks use them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from server.conftest import Served

GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}


def generate(served: Served, **body: Any) -> Any:
    body.setdefault("sampling_params", GREEDY)
    answer = served.http.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def frames(served: Served, **body: Any) -> list[Any]:
    body.setdefault("sampling_params", GREEDY)
    answer = served.http.post("/generate", json={**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def test_a_text_is_answered_as_the_openai_route_answers_it(served: Served) -> None:
    theirs = served.openai.completions.create(
        model="toy", prompt="the sky is", temperature=0, max_tokens=6, extra_body={"ignore_eos": True}
    )
    for text in ({"text": "the sky is"}, {"input_ids": list(b"the sky is")}):
        ours = generate(served, **text)
        assert ours["text"] == theirs.choices[0].text
        assert len(ours["output_ids"]) == ours["meta_info"]["completion_tokens"] == 6
        assert ours["meta_info"]["finish_reason"] == {"type": "length", "length": 6}


def test_cached_tokens_are_right_cold_and_warm(served: Served) -> None:
    cold = generate(served, text="a prompt of some length")["meta_info"]
    warm = generate(served, text="a prompt of some length")["meta_info"]
    assert (cold["prompt_tokens"], cold["cached_tokens"]) == (23, 0)
    assert (warm["prompt_tokens"], warm["cached_tokens"]) == (23, 22)
    assert warm["cached_tokens_details"] == {"device": 22, "host": 0}


def test_each_frame_holds_the_whole_answer_so_far(served: Served) -> None:
    served.script("häst".encode())
    whole = generate(served, text="x")
    parts = frames(served, text="x")
    assert [part["text"] for part in parts] == ["h", "h", "hä", "häs", "häst", "häst"]
    assert [part["output_ids"] for part in parts] == [whole["output_ids"][: i + 1] for i in range(6)]
    assert [part["meta_info"]["completion_tokens"] for part in parts] == [1, 2, 3, 4, 5, 6]
    reasons = [part["meta_info"]["finish_reason"] for part in parts]
    assert reasons == [None] * 5 + [whole["meta_info"]["finish_reason"]]


def test_a_batch_is_a_list_with_settings_of_their_own(served: Served) -> None:
    served.script(b"abcdef")
    params = [{"max_new_tokens": 2}, {"max_new_tokens": 3, "n": 2}]
    answers = generate(served, text=["p", "q"], rid=["one", "two"], sampling_params=params)
    assert [each["text"] for each in answers] == ["ab", "abc", "abc"]
    assert [each["meta_info"]["id"] for each in answers] == ["one", "two", "two"]
    (alone,) = generate(served, input_ids=[[1, 2]], rid="r")
    assert alone["meta_info"]["id"] == "r"


def test_frames_of_a_batch_say_whose_they_are(served: Served) -> None:
    served.script(b"abc")
    parts = frames(served, text=["p", "q"], sampling_params={"max_new_tokens": 3})
    for index in (0, 1):
        mine = [part["text"] for part in parts if part["index"] == index]
        assert mine == ["a", "ab", "abc"]


def test_what_stopped_an_answer_is_told(served: Served) -> None:
    def reason(**params: Any) -> Any:
        return generate(served, text="p", sampling_params=params)["meta_info"]["finish_reason"]

    served.script("grün, blau".encode())
    assert reason(stop=["zz", ", "]) == {"type": "stop", "matched": ", "}
    assert reason(stop_token_ids=[ord("b")]) == {"type": "stop", "matched": ord("b")}
    assert reason() == {"type": "stop", "matched": 256}
    assert reason(max_new_tokens=2) == {"type": "length", "length": 2}


@pytest.mark.parametrize("start", [0, 3])
def test_logprobs_of_the_prompt_are_those_of_the_openai_route(served: Served, start: int) -> None:
    theirs = (
        served.openai.completions.create(
            model="toy", prompt="abcdef", temperature=0, max_tokens=2, echo=True, logprobs=2
        )
        .choices[0]
        .logprobs
    )
    assert theirs is not None
    assert theirs.token_logprobs is not None
    for _ in range(2):
        meta = generate(
            served,
            text="abcdef",
            sampling_params={"temperature": 0, "max_new_tokens": 2},
            return_logprob=True,
            logprob_start_len=start,
            top_logprobs_num=2,
            return_text_in_logprobs=True,
        )["meta_info"]
        assert meta["input_token_logprobs"][0] == [None, b"abcdef"[start], "abcdef"[start]]
        assert [each[0] for each in meta["input_token_logprobs"][1:]] == theirs.token_logprobs[start + 1 : 6]
        assert [each[0] for each in meta["output_token_logprobs"]] == theirs.token_logprobs[6:]
        assert meta["input_top_logprobs"][0] is None
        assert [len(each) for each in meta["output_top_logprobs"]] == [2, 2]
        assert meta["output_top_logprobs"][0][0][0] == meta["output_token_logprobs"][0][0]


def test_logprobs_of_the_answer_alone_leave_reuse_on(served: Served) -> None:
    generate(served, text="abcdef")
    meta = generate(served, text="abcdef", return_logprob=True)["meta_info"]
    assert meta["cached_tokens"] == 5
    assert meta["input_token_logprobs"] == []
    assert [each[1:] for each in meta["output_token_logprobs"]] == [
        [token, None] for token in generate(served, text="abcdef")["output_ids"]
    ]
    assert "output_top_logprobs" not in meta


def test_keys_and_salts_part_the_cache(served: Served) -> None:
    def cached(**fields: str) -> int:
        meta = generate(served, text="a long enough prompt", **fields)["meta_info"]
        count: int = meta["cached_tokens"]
        return count

    scopes = [{}, {"extra_key": "a"}, {"cache_salt": "b"}, {"cache_salt": "b", "extra_key": "a"}]
    assert [cached(**scope) for scope in scopes] == [0, 0, 0, 0]
    assert [cached(**scope) for scope in scopes] == [19, 19, 19, 19]


def test_an_unlimited_answer_ends_where_the_context_does(served: Served) -> None:
    prompt = [65] * 4090
    meta = generate(served, input_ids=prompt, sampling_params={"ignore_eos": True})["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 6}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "'text' or 'input_ids' is required"),
        ({"text": "a", "input_ids": [1]}, "exclude each other"),
        ({"text": 3}, "'text' is 3"),
        ({"text": ""}, "empty"),
        ({"text": []}, "'text' is empty"),
        ({"text": ["a"] * 300}, "300"),
        ({"text": ["a", 3]}, "'text[1]' is 3"),
        ({"input_ids": []}, "'input_ids'"),
        ({"input_ids": [1, 259]}, "'input_ids[1]' is 259"),
        ({"input_ids": [[1], ["a"]]}, "'input_ids[1][0]'"),
        ({"text": "a", "sampling_params": 3}, "'sampling_params' is 3"),
        ({"text": "a", "sampling_params": {"temperature": "hot"}}, "'sampling_params.temperature'"),
        ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "'sampling_params.max_new_tokens' is -1"),
        ({"text": "a", "sampling_params": {"min_new_tokens": 200}}, "'sampling_params.min_new_tokens'"),
        ({"text": "a", "sampling_params": {"regex": "a("}}, "'sampling_params.regex' cannot be used"),
        ({"text": "a", "sampling_params": {"ebnf": "root ::= b"}}, "'sampling_params.ebnf' cannot be used"),
        ({"text": "a", "sampling_params": {"ebnf": 3}}, "'sampling_params.ebnf' is 3"),
        (
            {"text": "a", "sampling_params": {"json_schema": "{"}},
            "'sampling_params.json_schema' is not valid JSON",
        ),
        (
            {"text": "a", "sampling_params": {"json_schema": "{}", "regex": "a"}},
            "'sampling_params.json_schema' and 'sampling_params.regex' exclude each other",
        ),
        ({"text": "a", "sampling_params": {"n": 1000}}, "'sampling_params.n' is 1000"),
        ({"text": "a", "sampling_params": {"logit_bias": {"x": 1}}}, "'sampling_params.logit_bias'"),
        ({"text": ["a", "b"], "sampling_params": [{}]}, "1 entries for 2 prompts"),
        ({"text": ["a", "b"], "rid": ["x"]}, "'rid' has 1 entries"),
        ({"text": ["a"] * 200, "sampling_params": {"n": 2}}, "400 samples"),
        ({"text": "a", "lora_path": "x"}, "'lora_path'"),
        ({"text": "ab", "return_logprob": True, "logprob_start_len": 2}, "'logprob_start_len' is 2"),
        ({"input_ids": [1] * 4097}, "4097 tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(served: Served, body: dict[str, Any], named: str) -> None:
    answer = served.http.post("/generate", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert named in error["message"]
    assert error["code"] == 400


def test_unknown_fields_are_named_and_pass(served: Served) -> None:
    body = {"text": "a", "routing_key": "x", "sampling_params": {"max_new_tokens": 1, "custom": 2}}
    answer = served.http.post("/generate", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-sapwood-ignored"] == "routing_key,sampling_params.custom"


def test_a_body_that_is_no_json_is_refused_in_the_same_shape(served: Served) -> None:
    answer = served.http.post("/generate", content=b"{")
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "code"}


def test_a_flush_by_get_is_told_in_words_and_forgets(served: Served) -> None:
    generate(served, text="something")
    assert served.http.head("/flush_cache").status_code == 405
    assert generate(served, text="something")["meta_info"]["cached_tokens"] == 8
    answer = served.http.get("/flush_cache")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "Cache flushed.\n"
    assert generate(served, text="something")["meta_info"]["cached_tokens"] == 0


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_the_server_tells_its_state(served: Served, path: str) -> None:
    told = served.http.get(path).json()
    assert told["served_model_name"] == "toy"
    assert told["context_length"] == 4096
    (state,) = told["internal_states"]
    assert (state["num_running_reqs"], state["max_total_num_tokens"]) == (0, 8192)
    assert told["vllm_config"]["cache_config"]["enable_prefix_caching"] is True
    assert told["disable_radix_cache"] is False


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
def test_the_model_is_told(served: Served, path: str) -> None:
    assert served.http.get(path).json()["is_generation"] is True


PET = {
    "type": "object",
    "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
    "required": ["legs"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ({"regex": "[ab]{3}-[0-9]+x"}, "[ab]{3}-[0-9]+x"),
        ({"ebnf": 'root ::= "a" [bc]{2,2}'}, "a[bc]{2}"),
        ({"json_schema": json.dumps(PET)}, r'\{\s*"legs"\s*:\s*[0-8]\s*\}'),
        ({"json_schema": PET}, r'\{\s*"legs"\s*:\s*[0-8]\s*\}'),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(served: Served, form: dict[str, Any], shape: str) -> None:
    params = {"max_new_tokens": 400, "sampling_seed": 3, "n": 2, **form}
    answers = generate(served, text="x", sampling_params=params)
    assert len(answers) == 2
    for answer in answers:
        assert re.fullmatch(shape, answer["text"])
        assert answer["meta_info"]["finish_reason"]["type"] == "stop"


def test_each_prompt_of_a_batch_has_its_own_form(served: Served) -> None:
    forms = [{"regex": "a{3}"}, {"regex": ""}, {"ebnf": 'root ::= "b" "c"'}]
    params = [{"max_new_tokens": 5, "temperature": 0, **form} for form in forms]
    served.script(b"free!")
    texts = [each["text"] for each in generate(served, text=["x", "y", "z"], sampling_params=params[1])]
    assert texts == ["free!"] * 3
    served.script(None)
    first, _, last = generate(served, text=["x", "y", "z"], sampling_params=params)
    assert (first["text"], last["text"]) == ("aaa", "bc")


@pytest.mark.parametrize("path", ["/open_session", "/close_session"])
def test_there_are_no_sessions_and_the_server_says_what_to_do(served: Served, path: str) -> None:
    answer = served.http.post(path, json={"capacity_of_str_len": 1000})
    assert answer.status_code == 400
    assert "send the whole prompt" in answer.json()["error"]["message"]


def test_more_different_forms_than_can_be_compiled_soon_are_refused(served: Served) -> None:
    forms = [{"max_new_tokens": 1, "regex": f"a{i}"} for i in range(17)]
    answer = served.http.post("/generate", json={"text": ["x"] * 17, "sampling_params": forms})
    assert answer.status_code == 400
    assert "17 different schemas or grammars; at most 16" in answer.json()["error"]["message"]
    alike = {"text": ["x"] * 17, "sampling_params": [*forms[:16], forms[0]]}
    assert served.http.post("/generate", json=alike).status_code == 200


def test_no_tokens_only_fill_the_cache(served: Served) -> None:
    filled = generate(served, text="warm me", sampling_params={"max_new_tokens": 0})
    assert (filled["text"], filled["meta_info"]["completion_tokens"]) == ("", 0)
    assert generate(served, text="warm me please")["meta_info"]["cached_tokens"] == 7
