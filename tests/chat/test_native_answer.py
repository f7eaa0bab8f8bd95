from __future__ import annotations

import pytest

from sapwood.chat.native_answer import Ending, Growing, Timed, Watch, ending_of
from sapwood.chat.openai_render import Json
from sapwood.chat.tokenizer import Tokenizer
from sapwood.types import Delta, Event, Finished, PromptScored, Started, Usage


class SteppedClock:
    """Stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def grown(tokenizer: Tokenizer, spelled: str, shown: str) -> Growing:
    return Growing(shown, tokenizer.encode(spelled), finish="stop")


@pytest.mark.parametrize(
    ("spelled", "shown", "stops", "found"),
    [
        ("blue, red", "blue", (", ", "red"), ", "),
        ("blue, red", "blue, ", ("zz", "red"), "red"),
        ("grün.", "grün", (".",), "."),
        ("abc", "a", ("b", "bc"), "bc"),
    ],
)
def test_the_stop_string_is_found_behind_the_text(
    small: Tokenizer, spelled: str, shown: str, stops: tuple[str, ...], found: str
) -> None:
    assert ending_of(grown(small, spelled, shown), stops, (), small) == Ending(stop=found)


def test_an_end_token_or_a_stop_token_is_told_by_its_id(small: Tokenizer) -> None:
    end = min(small.special_ids)
    assert ending_of(Growing("a", [97, end], finish="stop"), ("a",), (), small) == Ending(token=end)
    (letter,) = small.encode("a")
    assert ending_of(Growing("", [letter], finish="stop"), (), (letter,), small) == Ending(token=letter)


def test_a_limit_is_neither(small: Tokenizer) -> None:
    assert ending_of(Growing("a", [97], finish="length"), ("a",), (97,), small) == Ending()
    assert ending_of(Growing(finish="stop"), (), (), small) == Ending()


def usage(completion: int = 0) -> Usage:
    return Usage(prompt_tokens=10, reused=6, missed={"never_seen": 4}, completion_tokens=completion)


def test_the_times_of_prompt_and_answer_are_parted_at_the_first_token() -> None:
    clock = SteppedClock()
    watch = Watch(clock)
    steps: list[tuple[float, Event]] = [
        (101.0, Started("r", usage())),
        (103.0, PromptScored("r", ())),
        (103.5, Delta("r", 0, "a", (1,))),
        (104.0, Delta("r", 0, "", (2,))),
        (105.0, Delta("r", 0, "b", (), finish="length")),
    ]
    for clock.now, event in steps:
        watch.note(event)
    clock.now = 106.0
    assert watch.timings() == {
        "cache_n": 6,
        "prompt_n": 4,
        "prompt_ms": 2500.0,
        "prompt_per_token_ms": 625.0,
        "prompt_per_second": 1.6,
        "predicted_n": 2,
        "predicted_ms": 500.0,
        "predicted_per_token_ms": 250.0,
        "predicted_per_second": 4.0,
    }
    assert watch.total_seconds == 6.0


def test_a_prompt_without_an_answer_took_until_the_end() -> None:
    clock = SteppedClock()
    watch = Watch(clock)
    events: list[tuple[float, Event]] = [(101.0, Started("r", usage())), (104.0, Finished("r", usage()))]
    for clock.now, event in events:
        watch.note(event)
    timings = watch.timings()
    assert (timings["prompt_ms"], timings["predicted_ms"], timings["predicted_per_second"]) == (3000.0, 0, 0)


class _Plain:
    def feed(self, prompt: int, event: Event) -> list[Json]:
        return [{"prompt": prompt}] if isinstance(event, Delta) else []

    def end(self, usages: object) -> list[Json]:
        return [{"usages": usages}]


def test_timings_stand_beside_the_last_chunks_only() -> None:
    timed = Timed(_Plain(), SteppedClock())
    assert timed.feed(0, Started("r", usage())) == []
    assert timed.feed(0, Delta("r", 0, "a", (1,))) == [{"prompt": 0}]
    (last,) = timed.feed(0, Delta("r", 0, "", (2,), finish="stop"))
    assert last["timings"]["predicted_n"] == 2
    (end,) = timed.end([usage()])
    assert (end["timings"]["cache_n"], end["timings"]["prompt_n"]) == (6, 4)
