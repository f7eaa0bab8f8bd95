"""Why prompt tokens were computed rather than reused."""

from __future__ import annotations

from sapwood.sched.sequence import Reuse


def account(prompt_len: int, matched: int, page_size: int) -> Reuse:
    """Split a prompt that reads the cache. `matched` tokens of its first prompt_len-1 were found.

    When the match is as long as whole pages allow, the rest was not to be had: the last token is always
    computed (its logits are drawn from), and the tokens between the match and it fill no page (`page_tail`).
    With a shorter match the rest is `never_seen`.
    """
    rest = prompt_len - matched
    longest = (prompt_len - 1) // page_size * page_size
    if matched < longest:
        return Reuse(matched, {"never_seen": rest})
    missed = {"page_tail": rest - 1, "last_token": 1}
    return Reuse(matched, {reason: count for reason, count in missed.items() if count})


def account_unread(prompt_len: int) -> Reuse:
    """A prompt that may not read the cache."""
    return Reuse(0, {"reuse_off": prompt_len})
