"""The prefix cache and the scheduler, without a server: what they cost, and what they save.

operations      match, insert, commit, evict beside a heap over all leaves at each call
memory          bytes for each cached token
bookkeeping     the share of a decode step
starved_chat    prompt tokens computed when memory is short, by order and eviction
hot_and_cold    how long the few wait beside the many
trace_replay    hit rates on real traffic, beside LRU's and the optimum's
"""

from __future__ import annotations

from .suite import run_cache

__all__ = ["run_cache"]
