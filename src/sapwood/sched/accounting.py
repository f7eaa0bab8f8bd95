"""Why prompt tokens were computed rather than reused."""

from __future__ import annotations

from sapwood.cache import History
from sapwood.sched.sequence import Reuse


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
