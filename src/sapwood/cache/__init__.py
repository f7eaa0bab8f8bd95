"""What is remembered and where. Knows tokens, pages and namespaces; no model, no clock, no threads."""

from __future__ import annotations

from sapwood.cache.books import Books, Flushed
from sapwood.cache.curve import CurvePoint, HitRateCurve
from sapwood.cache.keys import Namespace, PageIds, Tokens
from sapwood.cache.lease import Lease
from sapwood.cache.prefix_cache import History, Match, PrefixCache
from sapwood.cache.scores import ScoreStore, Trail

__all__ = [
    "Books",
    "CurvePoint",
    "Flushed",
    "History",
    "HitRateCurve",
    "Lease",
    "Match",
    "Namespace",
    "PageIds",
    "PrefixCache",
    "ScoreStore",
    "Tokens",
    "Trail",
]
