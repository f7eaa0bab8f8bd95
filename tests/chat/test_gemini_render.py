"""Engine events → a Gemini answer."""

from __future__ import annotations

from typing import Any

from sapwood.chat.gemini_render import GeminiAnswer, GeminiShape, GeminiStream, usage_json
from sapwood.chat.tool_answer import ToolReading
from sapwood.types import Delta, Event, FinishReason, Started, TokenLogprob, Usage
from server.fakes import byte_tokenizer

TOKENIZER = byte_tokenizer()
DONE = Usage(10, 4, {"never_seen": 6}, completion_tokens=5)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def shape(**options: Any) -> GeminiShape:
    return GeminiShape(
        **{"id": "gen-1", "model": "toy", "n": 1, "cached": lambda usage: usage.reused, **options}
    )


def delta(text: str, finish: FinishReason | None = None, sample: int = 0, **more: Any) -> Delta:
    return Delta("r", sample, text, tuple(text.encode()), finish=finish, **more)


def whole(shape: GeminiShape, *deltas: Delta) -> Any:
    answer = GeminiAnswer(shape, TOKENIZER)
    events: list[Event] = [Started("r", DONE), *deltas]
    for event in events:
        assert answer.feed(0, event) == []
    (told,) = answer.end([DONE])
    return told


def streamed(shape: GeminiShape, *deltas: Delta) -> list[Any]:
    stream = GeminiStream(shape, TOKENIZER)
    events: list[Event] = [Started("r", DONE), *deltas]
    return [*(each for event in events for each in stream.feed(0, event)), *stream.end([DONE])]


def reading(**options: Any) -> ToolReading:
    return ToolReading("hermes", frozenset("f"), {}, **options)


def test_usage_leaves_out_what_is_nothing_and_sums_up() -> None:
    assert usage_json(DONE, 0) == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "totalTokenCount": 15,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
    }
    told = usage_json(DONE, 4, thought=2)
    assert (told["candidatesTokenCount"], told["thoughtsTokenCount"], told["totalTokenCount"]) == (3, 2, 15)
    assert told["cachedContentTokenCount"] == told["cacheTokensDetails"][0]["tokenCount"] == 4


def test_a_whole_answer_is_one_object() -> None:
    assert whole(shape(), delta("a"), delta("b", "stop")) == {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "ab"}]}, "index": 0, "finishReason": "STOP"}
        ],
        "modelVersion": "toy",
        "responseId": "gen-1",
        "usageMetadata": usage_json(DONE, 4),
    }


def test_an_answer_without_a_word_has_an_empty_part() -> None:
    (candidate,) = whole(shape(), delta("", "length"))["candidates"]
    assert candidate["content"]["parts"] == [{"text": ""}]
    assert candidate["finishReason"] == "MAX_TOKENS"


def test_a_stream_gives_each_piece_once_and_usage_at_the_end() -> None:
    deltas = [delta("a"), delta(""), delta("b"), delta("c"), delta("", "stop")]
    first, second, last = streamed(shape(), *deltas)
    assert [each["candidates"][0]["content"]["parts"] for each in (first, second, last)] == [
        [{"text": "a"}],
        [{"text": "b"}],
        [{"text": "c"}],
    ], "Google's SDK forgets a turn whose last part is empty"
    assert "finishReason" not in first["candidates"][0]
    assert "usageMetadata" not in first
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"] == usage_json(DONE, 4)


def test_the_reuse_is_asked_for_once_when_it_begins() -> None:
    asked: list[Usage] = []

    def cached(usage: Usage) -> int:
        asked.append(usage)
        return 7

    assert whole(shape(cached=cached), delta("a", "stop"))["usageMetadata"]["cachedContentTokenCount"] == 7
    assert asked == [DONE]


def test_calls_are_parts_with_their_arguments_as_an_object() -> None:
    deltas = [delta("I look. "), *(delta(char) for char in CALL), delta("", "stop")]
    told = whole(shape(reading=reading()), *deltas)["candidates"][0]
    text, call = told["content"]["parts"]
    assert text == {"text": "I look."}
    assert (call["functionCall"]["name"], call["functionCall"]["args"]) == ("f", {"a": 1})
    assert told["finishReason"] == "STOP"
    parts = [
        part
        for chunk in streamed(shape(reading=reading()), *deltas)
        for part in chunk["candidates"][0]["content"]["parts"]
        if part != {"text": ""}
    ]
    assert parts[-1] == call
    assert "".join(part.get("text", "") for part in parts) == "I look."


def test_thoughts_are_told_if_asked_for_and_counted_anyway() -> None:
    deltas = [*(delta(char) for char in "<think>hm</think>yes"), delta("", "stop")]
    quiet = whole(shape(reading=reading(thinks=True)), *deltas)
    assert [part["text"].strip() for part in quiet["candidates"][0]["content"]["parts"]] == ["yes"]
    assert quiet["usageMetadata"]["thoughtsTokenCount"] > 0
    loud = whole(shape(reading=reading(thinks=True), thoughts=True), *deltas)
    thought, text = loud["candidates"][0]["content"]["parts"]
    assert (thought["thought"], thought["text"].strip()) == (True, "hm")
    assert (text["text"].strip(), "thought" in text) == ("yes", False)


def test_candidates_do_not_mix() -> None:
    deltas = [delta("a"), delta("x", sample=1), delta("b", "stop"), delta("y", "length", sample=1)]
    told = whole(shape(n=2), *deltas)["candidates"]
    assert [(each["index"], each["content"]["parts"][0]["text"], each["finishReason"]) for each in told] == [
        (0, "ab", "STOP"),
        (1, "xy", "MAX_TOKENS"),
    ]
    chunks = streamed(shape(n=2), *deltas)
    texts = [(each["index"], each["content"]["parts"][0]["text"]) for c in chunks for each in c["candidates"]]
    assert texts == [(0, "a"), (1, "x"), (0, "b"), (1, "y")]
    assert [each["finishReason"] for each in chunks[-1]["candidates"]] == ["STOP", "MAX_TOKENS"]


def test_logprobs_of_a_stream_are_of_the_tokens_since() -> None:
    scored = [TokenLogprob(97, -1.0, ((97, -1.0), (98, -2.0))), TokenLogprob(98, float("-inf"), ())]
    deltas = [delta("a", logprobs=(scored[0],)), delta("b", logprobs=(scored[1],)), delta("", "stop")]
    chunks = streamed(shape(logprobs=True), *deltas)
    results = [each["candidates"][0].get("logprobsResult") for each in chunks]
    assert results[0] == {
        "chosenCandidates": [{"token": "a", "tokenId": 97, "logProbability": -1.0}],
        "topCandidates": [
            {
                "candidates": [
                    {"token": "a", "tokenId": 97, "logProbability": -1.0},
                    {"token": "b", "tokenId": 98, "logProbability": -2.0},
                ]
            }
        ],
        "logProbabilitySum": -1.0,
    }
    assert results[1]["chosenCandidates"][0]["logProbability"] == -9999.0, "JSON has no infinity"
    assert len(results) == 2
