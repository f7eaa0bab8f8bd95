"""Why prompt tokens were computed rather than reused."""

from __future__ import annotations

from sapwood.sched.sequence import Reuse


def account(prompt_len: int, matched: int, page_size: int, in_flight: int = 0) -> Reuse:
    """Split a prompt that reads the cache. `matched` tokens of its first prompt_len-1 were found.

    Two reasons hold whatever the cache knew: the last token is always computed (`last_token`: its logits are
    drawn from), and the tokens before it that fill no page cannot be found (`page_tail`). What is left
    between the match and these begins with the `in_flight` tokens that another sequence was just computing,
    and was not waited for; the rest is `never_seen`.
    """
    longest = (prompt_len - 1) // page_size * page_size
    missed = {
        "in_flight": in_flight,
        "never_seen": longest - matched - in_flight,
        "page_tail": prompt_len - 1 - longest,
        "last_token": 1,
    }
    return Reuse(matched, {reason: count for reason, count in missed.items() if count})


def account_unread(prompt_len: int) -> Reuse:
    """A prompt that may not read the cache."""
    return Reuse(0, {"reuse_off": prompt_len})
