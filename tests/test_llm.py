from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sapwood import LLM, Retain, SamplingParams
from sapwood.errors import (
    ContextLengthError,
    DeadEndError,
    RequestError,
    SapwoodError,
    UnavailableError,
    UsageError,
)
from sapwood.types import Constraint, Delta, Finished, Started
from server.fakes import FakeBuilt, FakeFacts, build_fake

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture
def built() -> FakeBuilt:
    return build_fake()


@pytest.fixture
def llm(built: FakeBuilt) -> Iterator[LLM]:
    with LLM.over(built) as llm:
        yield llm


def test_results_come_in_order_and_say_what_was_reused(llm: LLM) -> None:
    prompts = [f"shared prefix, then {i}" for i in range(10)]
    cold = llm.generate(prompts, GREEDY)
    warm = llm.generate(prompts, GREEDY)
    assert [r.token_ids for r in warm] == [r.token_ids for r in cold]
    assert [r.prompt_tokens for r in cold] == [len(p) for p in prompts]
    assert [r.reused_tokens for r in warm] == [len(p) - 1 for p in prompts]
    assert {r.finish_reason for r in cold} == {"length"}
    alone = [llm.generate(prompt, GREEDY)[0].token_ids for prompt in prompts]
    assert alone == [r.token_ids for r in cold]


def test_prompts_run_at_once(llm: LLM, built: FakeBuilt) -> None:
    together = 0

    def look(plan: object) -> frozenset[object]:
        nonlocal together
        together = max(together, len(plan.works))  # type: ignore[attr-defined]
        return frozenset()

    built.runner.hook = look  # type: ignore[assignment]
    llm.generate([f"{i} prompt" for i in range(6)], GREEDY)
    assert together == 6


def test_all_shapes_of_prompts(llm: LLM) -> None:
    text, ids = llm.generate("ab", GREEDY), llm.generate([97, 98], GREEDY)
    mixed: list[Any] = [[97, 98], "ab"]
    both = llm.generate(mixed, GREEDY)
    assert text[0].token_ids == ids[0].token_ids == both[0].token_ids == both[1].token_ids
    assert llm.generate([], GREEDY) == []


def test_params_for_each_prompt(llm: LLM) -> None:
    short, long = llm.generate(
        ["a", "a"], [SamplingParams(max_tokens=1), SamplingParams(max_tokens=5, min_tokens=5)]
    )
    assert (len(short.token_ids), len(long.token_ids)) == (1, 5)
    with pytest.raises(UsageError, match="2 prompts and 1 params"):
        llm.generate(["a", "b"], [GREEDY])


def test_samples_and_logprobs(llm: LLM) -> None:
    params = SamplingParams(n=3, max_tokens=4, seed=1, ignore_eos=True, logprobs=2, prompt_logprobs=0)
    (result,) = llm.generate("abc", params)
    assert len({sample.token_ids for sample in result.samples}) == 3
    assert [entry.token for entry in result.logprobs] == list(result.token_ids)
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[0] is None
    assert len(result.prompt_logprobs) == 3


def test_a_chat_is_the_templates_prompt(llm: LLM, built: FakeBuilt) -> None:
    built.runner.script = b"hello"
    result = llm.chat([{"role": "user", "content": "hi"}])
    assert (result.text, result.finish_reason) == ("hello", "stop")
    rendered = "<|start|>user\nhi<|end|><|start|>assistant\n"
    assert llm.generate(rendered, GREEDY)[0].reused_tokens == result.prompt_tokens - 1
    with pytest.raises(RequestError) as caught:
        llm.chat([{"role": "king", "content": "hi"}])
    assert caught.value.param == "messages[0].role"


def test_a_stream_is_the_engines_events_and_closing_it_aborts(llm: LLM, built: FakeBuilt) -> None:
    events = list(llm.stream("abc", GREEDY))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    tokens = tuple(t for e in events if isinstance(e, Delta) for t in e.token_ids)
    assert tokens == llm.generate("abc", GREEDY)[0].token_ids
    endless = llm.stream("abc", SamplingParams(max_tokens=3000, ignore_eos=True))
    next(endless)
    endless.close()  # type: ignore[attr-defined]
    llm.generate("x", GREEDY)
    assert built.loop.stats().aborts == 1


def test_it_works_inside_an_event_loop(llm: LLM) -> None:
    async def notebook() -> int:
        return len(llm.generate("abc", GREEDY)[0].token_ids)

    assert asyncio.run(notebook()) == 8


def test_one_bad_prompt_refuses_all_before_any_work(llm: LLM, built: FakeBuilt) -> None:
    with pytest.raises(ContextLengthError, match="4096"):
        llm.generate(["fine", "x" * 5000], GREEDY)
    with pytest.raises(RequestError, match="token id"):
        llm.generate([[1, 999]], GREEDY)
    with pytest.raises(RequestError, match="empty"):
        llm.generate([""], GREEDY)
    assert built.runner.steps == 0


def test_a_failed_request_is_an_error(llm: LLM, built: FakeBuilt) -> None:
    built.runner.hook = lambda plan: frozenset(work.seq for work in plan.works)
    with pytest.raises(SapwoodError, match="told to fail"):
        llm.generate("abc", GREEDY)


def test_flush_forgets(llm: LLM) -> None:
    llm.generate("remember", GREEDY)
    llm.flush()
    assert llm.generate("remember", GREEDY)[0].reused_tokens == 0


def test_a_closed_llm_says_so(built: FakeBuilt) -> None:
    llm = LLM.over(built)
    llm.close()
    llm.close()
    with pytest.raises(UnavailableError):
        llm.generate("abc")


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        LLM("toy", page_sise=4)
    assert caught.value.hint == "did you mean 'page_size'?"
    with pytest.raises(UsageError, match="512MiB"):
        LLM("toy", kv_memory="lots")


# ---- prefixes ------------------------------------------------------------------------------------------


def pinned(built: FakeBuilt) -> int:
    """Tokens that are kept now."""
    return asyncio.run(built.loop.pins()).pinned_tokens


def test_a_prefix_is_kept_while_its_block_lasts(llm: LLM, built: FakeBuilt) -> None:
    with llm.prefix("You are brief. ") as prefix:
        assert pinned(built) == len("You are brief. ")
        first, second = prefix.generate(["Who?", "Why?"], GREEDY)
        assert first.reused_tokens == second.reused_tokens == len("You are brief. ")
        assert first.token_ids == llm.generate("You are brief. Who?", GREEDY)[0].token_ids
    assert pinned(built) == 0


def test_a_prefix_outlives_a_flood(built: FakeBuilt) -> None:
    small = build_fake(FakeFacts(capacity_pages=256, pin_tokens=200))
    built.loop.shutdown()
    with LLM.over(small) as llm, llm.prefix("x" * 150) as prefix:
        for i in range(50):
            llm.generate(f"{i:03}" + "y" * 80, SamplingParams(max_tokens=1))
        assert prefix.generate("", SamplingParams(max_tokens=1))[0].reused_tokens == 149


def test_the_boundary_is_not_split_anew(smollm_like: FakeBuilt) -> None:
    """In one text "ab" is one token; after a prefix that ends in "a" it stays two."""
    with LLM.over(smollm_like) as llm, llm.prefix("xa") as prefix:
        assert prefix.token_ids == (120, 97)
        longer = prefix.fork("b")
        assert longer.token_ids == (120, 97, 98)
        assert prefix.generate("b", GREEDY)[0].prompt_tokens == 3
        assert longer.generate([[99]], GREEDY)[0].prompt_tokens == 4
        assert llm.generate("xab", GREEDY)[0].prompt_tokens == 2


@pytest.fixture
def smollm_like(monkeypatch: pytest.MonkeyPatch) -> FakeBuilt:
    """A model whose tokenizer makes one token of "ab"."""
    built = build_fake()
    encode = type(built.tokenizer).encode

    def merging(tokenizer: Any, text: str, **options: Any) -> list[int]:
        return encode(tokenizer, text.replace("ab", "\x01"), **options)

    monkeypatch.setattr(type(built.tokenizer), "encode", merging)
    return built


def test_forks_hold_what_they_add_and_end_with_their_prefix_or_before(llm: LLM, built: FakeBuilt) -> None:
    with llm.prefix("abc") as prefix:
        one, two = prefix.fork("def"), prefix.fork("xyz!")
        assert pinned(built) == 3 + 3 + 4
        with one.fork("g") as deep:
            assert deep.token_ids == tuple(b"abcdefg")
            assert pinned(built) == 3 + 4 + 4
        assert pinned(built) == 3 + 3 + 4
        assert two.generate("?", GREEDY)[0].reused_tokens == 7
        one.close()
        assert pinned(built) == 3 + 4
    assert two.closed
    assert pinned(built) == 0
    two.close()
    prefix.close()


def test_a_closed_prefix_says_so(llm: LLM) -> None:
    with llm.prefix("abc") as prefix:
        pass
    for use in (lambda: prefix.generate("x"), lambda: prefix.fork("x"), prefix.__enter__):
        with pytest.raises(UsageError, match="this prefix is closed"):
            use()


def test_prefixes_that_are_too_much_are_refused_until_one_is_closed() -> None:
    with LLM.over(build_fake(FakeFacts(pin_tokens=100))) as llm:
        first = llm.prefix("a" * 60)
        with pytest.raises(RequestError, match="pins hold 60 of the 100") as caught:
            llm.prefix("b" * 60)
        assert caught.value.code == "pin_budget_exceeded"
        first.close()
        llm.prefix("b" * 60).close()


def test_a_flush_inside_the_block_takes_the_tokens_not_the_handle(llm: LLM) -> None:
    with llm.prefix("abc") as prefix:
        llm.flush()
        assert prefix.generate("d", GREEDY)[0].reused_tokens == 0
        assert prefix.generate("d", GREEDY)[0].reused_tokens == 3


def test_an_llm_closed_inside_the_block_ends_the_prefix_quietly(built: FakeBuilt) -> None:
    llm = LLM.over(built)
    with llm.prefix("abc") as prefix:
        llm.close()
    assert prefix.closed


def test_a_prefix_works_inside_an_event_loop(llm: LLM) -> None:
    async def notebook() -> int:
        with llm.prefix("abc") as prefix:
            return prefix.generate("d", GREEDY)[0].reused_tokens

    assert asyncio.run(notebook()) == 3


def test_what_is_retained_stays_longer() -> None:
    with LLM.over(build_fake(FakeFacts(capacity_pages=300))) as llm:
        llm.generate("k" * 100, SamplingParams(max_tokens=1), retain=Retain(80, seconds=300))
        llm.generate("p" * 100, SamplingParams(max_tokens=1))
        for i in range(20):
            llm.generate(f"{i:02}" + "y" * 70, SamplingParams(max_tokens=1))
        kept, plain = llm.generate(["k" * 100, "p" * 100], SamplingParams(max_tokens=1))
        assert kept.reused_tokens == 99
        assert plain.reused_tokens < 99


def test_an_llm_lets_prefixes_have_most_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def build(_model: object, cache: Any, _scheduler: object, progress: object) -> FakeBuilt:
        del progress
        shares.append(cache.pin_share)
        return build_fake()

    monkeypatch.setattr("sapwood.llm.build_engine", build)
    LLM().close()
    LLM(pin_share=0.5).close()
    assert shares == [0.9, 0.5]


@pytest.mark.parametrize("retain", ["x", [5], None, [Retain(5)] * 17])
def test_what_is_no_wish_to_retain_is_refused_and_harms_nothing(llm: LLM, retain: Any) -> None:
    with pytest.raises(RequestError):
        llm.generate("a", GREEDY, retain=retain)
    assert llm.generate("a", GREEDY)[0].finish_reason == "length"


def test_a_grammar_that_leads_nowhere_is_the_callers_error(llm: LLM, built: FakeBuilt) -> None:
    built.runner.script = b"xyz"
    params = SamplingParams(constraint=Constraint("regex", "abc"))
    with pytest.raises(DeadEndError, match="the grammar cannot go on") as caught:
        llm.generate("a", params)
    assert caught.value.param == "constraint"
