"""Why prompt tokens were computed rather than reused."""

from __future__ import annotations

from dataclasses import replace

from sapwood.cache import History, PrefixCache
from sapwood.sched.sequence import Reuse, Sequence


def reuse_of(cache: PrefixCache, sequence: Sequence, in_flight: int, *, indexed: bool) -> Reuse:
    """Where the prompt's tokens come from, at its first admission; `indexed` says whether anything is remembered."""
    if indexed and sequence.reads_cache:
        history = cache.history(sequence.namespace, sequence.tokens[:-1])
        reuse = account(sequence.prompt_len, cache.page_size, history, in_flight, sequence.readable)
    else:
        reuse = account_unread(sequence.prompt_len)
    since = sequence.follows_since
    return replace(reuse, waited_seconds=0.0 if since is None else cache.now - since)


def account(
    prompt_len: int, page_size: int, history: History, in_flight: int = 0, readable: int | None = None
) -> Reuse:
    """Split a prompt that reads the cache, in tokens; `history` is of its first prompt_len - 1.

        reused │ in_flight │ reuse_off │ evicted │ other_namespace │ diverged or never_seen │ page_tail │ last_token

    From the left: what is cached, up to `readable` tokens if that is given; what another sequence was just
    computing (with its scores, if these were wanting), and was not waited for; what is cached besides, and computed
    for its scores alone; what was cached once; what is cached under another adapter or salt of the same tenant. The
    rest has diverged if the known prefix is known to go on differently, and was never seen otherwise. The last token
    is always computed (its logits are drawn from), and what before it fills no page cannot be found.
    """
    longest = (prompt_len - 1) // page_size * page_size
    reused = history.cached
    if readable is not None:
        reused = min(reused, readable // page_size * page_size)
    computing = max(reused + in_flight, history.cached)
    once = max(computing, history.known)
    elsewhere = max(once, history.elsewhere)
    missed = {
        "in_flight": in_flight,
        "reuse_off": computing - reused - in_flight,
        "evicted": once - computing,
        "other_namespace": elsewhere - once,
        "diverged": longest - elsewhere,
        "page_tail": prompt_len - 1 - longest,
        "last_token": 1,
    }
    diverged = history.branches and elsewhere == history.known
    if not diverged:
        missed["never_seen"] = missed.pop("diverged")
    return Reuse(
        reused=reused,
        missed={reason: count for reason, count in missed.items() if count},
        diverged_at=history.known if diverged and longest > elsewhere else None,
        evicted_seconds_ago=history.evicted_seconds_ago if once > computing else None,
    )


def account_unread(prompt_len: int) -> Reuse:
    """A prompt that may not read the cache."""
    return Reuse(0, {"reuse_off": prompt_len})
