"""Why prompt tokens were computed rather than reused."""

from __future__ import annotations

from sapwood.sched.sequence import Reuse


def account(prompt_len: int, matched: int, page_size: int) -> Reuse:
    """Split a prompt that reads the cache. `matched` tokens of its first prompt_len-1 were found.

    Two reasons hold whatever the cache knew: the last token is always computed (`last_token`: its logits are
    drawn from), and the tokens before it that fill no page cannot be found (`page_tail`). What is left
    between the match and these is `never_seen`.
    """
    longest = (prompt_len - 1) // page_size * page_size
    missed = {"never_seen": longest - matched, "page_tail": prompt_len - 1 - longest, "last_token": 1}
    return Reuse(matched, {reason: count for reason, count in missed.items() if count})


def account_unread(prompt_len: int) -> Reuse:
    """A prompt that may not read the cache."""
    return Reuse(0, {"reuse_off": prompt_len})
