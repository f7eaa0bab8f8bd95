from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.rig import VOCAB, ByteDetok, Log, Rig, greedy, prompt_of, text_of
from sapwood.config import OrderName
from sapwood.errors import ContextLengthError, RequestError
from sapwood.types import Request, SamplingParams, Scope


def test_exact_repeat_reuses_all_but_the_last_token() -> None:
    rig = Rig()
    prompt = prompt_of(150)
    cold, warm = rig.ask(prompt), rig.ask(prompt)
    rig.expect_solo(cold)
    rig.expect_solo(warm)
    assert (cold.usage.reused, cold.usage.missed) == (0, {"never_seen": 149, "last_token": 1})
    assert (warm.usage.reused, warm.usage.missed) == (149, {"last_token": 1})
    rig.expect_no_leaks()


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 48, 49])
def test_repeats_of_every_remainder(page_size: int, length: int) -> None:
    rig = Rig(page_size=page_size, chunk=32)
    prompt = prompt_of(length)
    rig.expect_solo(rig.ask(prompt))
    warm = rig.ask(prompt)
    rig.expect_solo(warm)
    assert warm.usage.reused == (length - 1) // page_size * page_size
    assert warm.usage.missed.get("last_token") == 1
    assert warm.usage.missed.get("page_tail", 0) == (length - 1) % page_size
    rig.expect_no_leaks()


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_partial_hits_at_every_length(chunk: int, page_size: int) -> None:
    rig = Rig(page_size=page_size, chunk=chunk)
    prompt = prompt_of(60)
    rig.ask(prompt, greedy(1))
    for length in range(0, 60, 3):
        tail = tuple((t + 1) % VOCAB for t in prompt[length : length + 9])
        log = rig.ask(prompt[:length] + tail, greedy(4))
        rig.expect_solo(log)
        assert log.usage.reused >= min(length, len(log.request.prompt) - 1) // page_size * page_size
    rig.expect_no_leaks()


def test_generated_tokens_are_reused_but_for_the_one_never_fed() -> None:
    rig = Rig()
    first = rig.ask(prompt_of(20), greedy(10))
    turn = first.request.prompt + first.samples[0].tokens + (3, 4)
    second = rig.ask(turn, greedy(5))
    rig.expect_solo(second)
    assert second.usage.reused == 20 + 9


@pytest.mark.parametrize("tail", [1, 31, 32, 33])
def test_no_empty_chunk_after_a_hit(tail: int) -> None:
    rig = Rig(chunk=32)
    rig.ask(prompt_of(60), greedy(1))
    rig.expect_solo(rig.ask(prompt_of(60) + prompt_of(tail, salt=3), greedy(4)))


def test_sixty_requests_with_a_shared_prefix_and_uncached_lengths_around_the_chunk() -> None:
    rig = Rig(pool=8192, chunk=64, max_running=16)
    shared = prompt_of(40)
    rig.ask(shared, greedy(1))
    logs = [rig.add(shared + prompt_of(30 + i, salt=i + 1), greedy(3)) for i in range(60)]
    rig.run()
    for log in logs:
        rig.expect_solo(log)
        assert log.usage.reused >= 40
    rig.expect_no_leaks()


def test_prompts_that_arrive_together_share_what_is_committed_after_each_step() -> None:
    rig = Rig(chunk=32, max_running=8)
    logs = [rig.add(prompt_of(100), greedy(40)) for _ in range(2)]
    while not all(log.samples for log in logs):
        rig.step()
    flood = [rig.add(prompt_of(50, salt=i + 2), greedy(3)) for i in range(20)]
    rig.run()
    for log in (*logs, *flood):
        rig.expect_solo(log)
    rig.expect_no_leaks()


# ---- n samples -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 16])
def test_samples_share_one_prefill_and_differ(page_size: int) -> None:
    rig = Rig(page_size=page_size, chunk=16)
    log = rig.ask(prompt_of(64), SamplingParams(n=4, max_tokens=6, temperature=1.0, seed=5))
    rig.expect_solo(log)
    assert len({sample.tokens for sample in log.samples.values()}) > 1
    assert log.usage.completion_tokens == 24
    assert log.usage.reused == 0
    recomputed = 3 * (1 if page_size == 1 else page_size)
    assert rig.runner.computed_tokens == 64 + recomputed + 4 * 5
    rig.expect_no_leaks()


def test_sampling_does_not_depend_on_neighbours() -> None:
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=99)
    rig = Rig(chunk=16)
    alone = rig.ask(prompt_of(20), params)
    rig.engine.flush()
    for i in range(6):
        rig.add(prompt_of(10 + i, salt=i), SamplingParams(max_tokens=9, seed=i))
    together = rig.add(prompt_of(20), params)
    rig.run()
    assert together.samples == alone.samples


def test_a_negative_seed_is_a_seed() -> None:
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=-1)
    rig = Rig()
    assert rig.ask(prompt_of(20), params).samples == rig.ask(prompt_of(20), params).samples


# ---- where an answer ends --------------------------------------------------------------------------------


def test_max_tokens_zero_only_reads_the_prompt() -> None:
    rig = Rig()
    log = rig.ask(prompt_of(64), greedy(0, n=2))
    assert {s.finish for s in log.samples.values()} == {"length"}
    assert log.usage.completion_tokens == 0
    after = rig.ask((*prompt_of(64), 1), greedy(1))
    assert after.usage.reused == 64


def test_max_tokens_none_runs_to_the_context_limit() -> None:
    rig = Rig(context=50)
    log = rig.ask(prompt_of(20), greedy(None))
    rig.expect_solo(log)
    assert len(log.samples[0].tokens) == 30
    assert log.samples[0].finish == "length"


def test_eos_ends_the_answer_counts_and_gives_no_text() -> None:
    probe = Rig()
    drawn = probe.ask(prompt_of(20), greedy(12)).samples[0].tokens
    eos = drawn[5]
    rig = Rig(eos=(eos,))
    log = rig.ask(prompt_of(20), greedy(12))
    rig.expect_solo(log)
    first = drawn.index(eos)
    assert log.samples[0].finish == "stop"
    assert log.samples[0].tokens == drawn[: first + 1]
    assert log.usage.completion_tokens == first + 1
    ignoring = rig.ask(prompt_of(20), greedy(12, ignore_eos=True))
    assert ignoring.samples[0].tokens == drawn
    rig.expect_no_leaks()


def test_min_tokens_bans_end_tokens_until_then() -> None:
    probe = Rig()
    drawn = probe.ask(prompt_of(20), greedy(4)).samples[0].tokens
    rig = Rig(eos=(drawn[0],))
    assert len(rig.ask(prompt_of(20), greedy(9)).samples[0].tokens) == 1
    log = rig.ask(prompt_of(20), greedy(9, min_tokens=6))
    rig.expect_solo(log)
    assert len(log.samples[0].tokens) >= 6
    assert drawn[0] not in log.samples[0].tokens[:6]


def test_stop_token_ids_end_even_if_eos_is_ignored() -> None:
    probe = Rig()
    drawn = probe.ask(prompt_of(30), greedy(10)).samples[0].tokens
    rig = Rig(eos=(drawn[2],))
    log = rig.ask(prompt_of(30), greedy(10, stop_token_ids=(drawn[6],), ignore_eos=True))
    rig.expect_solo(log)
    assert log.samples[0].finish == "stop"
    assert log.samples[0].tokens[-1] == drawn[6]


@pytest.mark.parametrize("first", range(0, 12, 2))
def test_stop_strings_across_token_edges_cut_the_text(first: int) -> None:
    probe = Rig()
    full = probe.ask(prompt_of(25), greedy(40)).samples[0].text
    stop = full[first : first + 4]
    rig = Rig()
    log = rig.ask(prompt_of(25), greedy(40, stop=(stop, "never said")))
    rig.expect_solo(log)
    assert log.samples[0].finish == "stop"
    assert log.samples[0].text == full[: full.index(stop)]
    assert log.usage.completion_tokens == len(log.samples[0].tokens)
    rig.expect_no_leaks()


def test_stop_strings_are_not_searched_for_in_the_first_min_tokens() -> None:
    full = Rig().ask(prompt_of(26), greedy(12))
    pieces = [text_of((token,)) for token in full.samples[0].tokens]
    log = Rig().ask(prompt_of(26), greedy(12, min_tokens=6, stop=tuple(pieces)))
    assert log.samples[0].tokens == full.samples[0].tokens[:6]
    assert log.samples[0].text == "".join(pieces[:5])
    assert log.samples[0].finish == "stop"


def test_text_held_back_for_a_stop_string_is_given_at_the_end() -> None:
    probe = Rig()
    full = probe.ask(prompt_of(25), greedy(10)).samples[0].text
    log = Rig().ask(prompt_of(25), greedy(10, stop=(full[-2:] + "#",)))
    assert log.samples[0].text == full
    assert log.samples[0].finish == "length"


# ---- logprobs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_prompt_logprobs_are_complete_and_reuse_what_was_scored(chunk: int) -> None:
    rig = Rig(chunk=chunk)
    prompt = prompt_of(30)
    rig.ask(prompt)
    for missed in ({"reuse_off": 29, "last_token": 1}, {"last_token": 1}):
        log = rig.ask(prompt, greedy(2, prompt_logprobs=3, logprobs=2, n=2))
        rig.expect_solo(log)
        assert log.scored == (None, *rig.runner.score(prompt, 3))
        assert log.usage.missed == missed
        assert all(len(entry.top) == 2 for entry in log.samples[0].logprobs)
    assert rig.ask(prompt).usage.reused == 29
    rig.expect_no_leaks()


def test_a_single_token_can_be_scored() -> None:
    assert Rig().ask((5,), greedy(0, prompt_logprobs=0)).scored == (None,)


def test_reuse_off_reads_nothing_but_leaves_its_pages_to_others() -> None:
    rig = Rig()
    prompt = prompt_of(40)
    for _ in range(2):
        log = rig.ask(prompt, greedy(3), reuse=False)
        rig.expect_solo(log)
        assert (log.usage.reused, log.usage.missed) == (0, {"reuse_off": 40})
    assert rig.ask(prompt).usage.reused == 39
    rig.expect_no_leaks()


def test_without_an_index_nothing_is_reused() -> None:
    rig = Rig(index="none")
    for _ in range(2):
        log = rig.ask(prompt_of(40), greedy(3))
        rig.expect_solo(log)
        assert log.usage.missed == {"reuse_off": 40}
    rig.expect_no_leaks()


@pytest.mark.parametrize("other", [Scope(tenant="b"), Scope(adapter="b"), Scope(salt="b")])
def test_scopes_do_not_share(other: Scope) -> None:
    rig = Rig()
    mine = rig.add(prompt_of(40), greedy(3), scope=Scope("a", "a", "a"))
    rig.run()
    theirs = rig.add(prompt_of(40), greedy(3), scope=other)
    rig.run()
    again = rig.add(prompt_of(40), greedy(3), scope=Scope("a", "a", "a"))
    rig.run()
    assert (mine.usage.reused, theirs.usage.reused, again.usage.reused) == (0, 0, 39)


# ---- the door --------------------------------------------------------------------------------------------


def test_too_long_for_the_context_names_the_numbers() -> None:
    rig = Rig(context=100)
    with pytest.raises(
        ContextLengthError, match=r"90 tokens and up to 11 .* 101 in all.* 100 tokens"
    ) as error:
        rig.add(prompt_of(90), greedy(11))
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(ContextLengthError, match="100 tokens"):
        rig.add(prompt_of(100), greedy(None))
    rig.expect_solo(rig.ask(prompt_of(90), greedy(10)))


@pytest.mark.parametrize("page_size", [1, 8])
def test_a_prompt_as_long_as_the_pool_runs_and_one_token_more_is_refused(page_size: int) -> None:
    rig = Rig(pool=64, page_size=page_size, chunk=16)
    rig.ask(prompt_of(30, salt=9), greedy(5))  # Something to evict.
    for length, answer in ((63, 1), (64, 1), (32, 33), (64, 0)):
        log = rig.ask(prompt_of(length, salt=length), greedy(answer))
        rig.expect_solo(log)
    with pytest.raises(ContextLengthError, match="the KV pool holds 64 tokens"):
        rig.add(prompt_of(65), greedy(1))
    with pytest.raises(ContextLengthError, match="the KV pool holds 64 tokens"):
        rig.add(prompt_of(64), greedy(2))
    with pytest.raises(ContextLengthError, match="the KV pool holds 64 tokens"):
        rig.add(prompt_of(65), greedy(None))
    assert len(rig.ask(prompt_of(60), greedy(None)).samples[0].tokens) == 5
    rig.expect_no_leaks()


@pytest.mark.parametrize(
    ("prompt", "params", "param"),
    [
        ((), greedy(), "prompt"),
        ((1, VOCAB), greedy(), "prompt"),
        ((-1,), greedy(), "prompt"),
        ((1, 2**70), greedy(), "prompt"),
        ((1, -(2**70)), greedy(), "prompt"),
        ((1,), greedy(stop_token_ids=(VOCAB,)), "stop_token_ids"),
        ((1,), greedy(logit_bias={-1: 1.0}), "logit_bias"),
        ((1,), greedy(logprobs=VOCAB + 1), "logprobs"),
        ((1,), greedy(prompt_logprobs=-1), "prompt_logprobs"),
        ((1,), greedy(3, min_tokens=4), "min_tokens"),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing(
    prompt: tuple[int, ...], params: SamplingParams, param: str
) -> None:
    rig = Rig()
    with pytest.raises(RequestError) as error:
        rig.add(prompt, params)
    assert error.value.param == param
    assert not rig.engine.busy


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    rig = Rig()
    log = rig.add(prompt_of(5))
    with pytest.raises(RequestError, match="unique"):
        rig.engine.add(log.request, 0.0)
    rig.run()
    rig.expect_solo(log)
    rig.engine.add(Request(log.request.id, (1,), greedy(1)), 0.0)
    assert rig.engine.busy


# ---- what is counted -------------------------------------------------------------------------------------


def test_stats_add_up() -> None:
    rig = Rig(pool=256)
    logs = [rig.ask(prompt_of(20, salt=i % 3), greedy(5)) for i in range(9)]
    stats = rig.engine.stats()
    assert stats.prompt_tokens == 180
    assert stats.reused_tokens == sum(log.usage.reused for log in logs) > 0
    assert stats.reused_tokens + sum(stats.missed_tokens.values()) == stats.prompt_tokens
    assert stats.generated_tokens == 45
    assert stats.computed_tokens == rig.runner.computed_tokens
    assert stats.finished == 9
    assert stats.time_to_first_token.count == stats.queue.count == 9
    assert stats.inter_token.count == 36
    pages = stats.pages
    assert pages.free + pages.tree + pages.leased + pages.private == 256
    assert (stats.aborts, stats.failures, stats.preemptions) == (0, 0, 0)


def test_running_and_waiting_count_requests() -> None:
    rig = Rig(max_running=2)
    for i in range(5):
        rig.add(prompt_of(10, salt=i), greedy(5))
    rig.step()
    stats = rig.engine.stats()
    assert (stats.running, stats.waiting) == (2, 3)


# ---- one prompt, many samples ----------------------------------------------------------------------------


def test_samples_begin_only_when_the_prompt_is_read() -> None:
    rig = Rig(chunk=16)
    begun: list[tuple[int, ...]] = []

    def detok(prompt: tuple[int, ...]) -> ByteDetok:
        begun.append(prompt)
        return ByteDetok(prompt)

    rig.engine._detokenizer = detok
    log = rig.add(prompt_of(40), SamplingParams(n=100, max_tokens=2, seed=1))
    assert len(begun) == 1
    rig.step()
    rig.step()
    assert len(begun) == 1
    rig.run()
    assert len(begun) == 100
    rig.expect_solo(log)
    rig.expect_no_leaks()


def test_a_prompt_is_turned_into_an_array_once_for_all_samples() -> None:
    class Counted(tuple[int, ...]):
        walks = 0

        def __iter__(self) -> Iterator[int]:
            type(self).walks += 1
            return super().__iter__()

    rig = Rig()
    rig.engine._detokenizer = lambda _: ByteDetok(())
    rig.add(Counted(prompt_of(30)), SamplingParams(n=8, max_tokens=2, seed=1))
    rig.run()
    assert Counted.walks == 1


# ---- priority --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["default", "fcfs", "lpm", "random"])
def test_a_priority_that_nothing_reads_is_refused(policy: OrderName) -> None:
    rig = Rig(policy=policy)
    with pytest.raises(RequestError, match="'priority' is 2") as error:
        rig.engine.add(Request("r", (1,), greedy(), priority=2), 0.0)
    assert error.value.param == "priority"
    assert error.value.hint == "start the server with --schedule-policy priority"


def test_the_lowest_priority_runs_first() -> None:
    rig = Rig(policy="priority", max_running=1)
    for i, priority in enumerate([3, 0, -1, 0]):
        request = Request(f"r{i}", prompt_of(5, salt=i), greedy(1), priority=priority)
        rig.engine.add(request, 0.0)
        rig.logs[request.id] = Log(request)
    ended: list[str] = []
    while rig.engine.busy:
        rig.step()
        ended += [name for name, log in rig.logs.items() if log.finished and name not in ended]
    assert ended == ["r2", "r1", "r3", "r0"]
