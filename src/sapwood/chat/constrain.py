"""Keeps a model's answer within a grammar: which tokens may come next, by llguidance.

llguidance (https://github.com/guidance-ai/llguidance) walks a trie of the vocabulary's bytes along with an
Earley parser. Control tokens are never part of a text; the end tokens are allowed where the grammar may end.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import llguidance
import numpy as np

from sapwood.errors import DeadEndError, RequestError
from sapwood.types import Constraint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.chat.tokenizer import Tokenizer

_T = TypeVar("_T")

TRIED = 2
"""Tokens with which a grammar is tried."""
KEPT = 32
"""Compiled grammars that are kept for the next request with the same."""
MAX_TEXT = 2**20
"""Characters of a grammar, as it is compiled."""
MAX_LINES = 10_000
MAX_BRACKETS = 10_000
"""Opening brackets and braces: in a schema, its objects and lists. The time for some of them grows with the square."""
STACK_BYTES = 512 * 2**20
"""llguidance goes as deep as rules refer to rules, and more than 20 KiB for each. What is not used is no memory."""
LEXER_FUEL = 500_000
"""Bounds a grammar's regular expressions, in llguidance's own unit: the largest take half a second."""
WHITE_SPACE = r"[ \t\r\n]{0,32}"
"""Between the parts of JSON. Without a bound, small models write line breaks until they are stopped."""


class Guides:
    """Makes guides for one vocabulary. Any thread may call it; compiling lets others run."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, ends: Sequence[int]) -> None:
        """`ends` are the tokens with which the model ends its answer."""
        self._source, self._vocab_size, self._ends = tokenizer, vocab_size, list(ends)
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[tuple[str, str], llguidance.LLMatcher] = OrderedDict()
        self._door = threading.Lock()

    def check(self, constraint: Constraint) -> None:
        """Raises RequestError for a grammar that is none, or needs what is not supported."""
        self._matcher(constraint)

    def begin(self, constraint: Constraint) -> Guide:
        """A guide for one sample. Raises as `check`."""
        return Guide(self._matcher(constraint).deep_copy(), self._vocab_size)

    def _matcher(self, constraint: Constraint) -> llguidance.LLMatcher:
        key = (constraint.kind, constraint.text)
        with self._door:
            found = self._compiled.get(key)
            if found is not None:
                self._compiled.move_to_end(key)
                return found
            if self._vocabulary is None:
                if not self._ends:
                    raise RequestError(
                        "this model has no end token; an answer within a grammar could not end",
                        param=constraint.param,
                    )
                self._vocabulary = _vocabulary(self._source, self._vocab_size, self._ends)
        _check_size(constraint)
        matcher = _with_room(partial(_compiled, self._vocabulary, constraint))
        with self._door:
            self._compiled[key] = matcher
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return matcher


class Guide:
    """Implements `plan.Guide` for one sample: what it knows follows from the tokens it is shown."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._consumed = 0

    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        """shape (vocab_size,): the tokens that may follow `generated`, all that was generated so far.

        Raises DeadEndError if nothing may, or if the grammar has become too large.
        """
        if len(generated) < self._consumed:
            self._matcher.reset()
            self._consumed = 0
        self._matcher.consume_tokens(generated[self._consumed :].tolist())
        self._consumed = len(generated)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise DeadEndError(f"the grammar cannot go on: {_first_line(self._matcher.get_error())}")
        allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        if not allowed.any():
            raise DeadEndError("the grammar allows no token of this vocabulary")
        return allowed


class _Vocabulary:
    """The vocabulary in llguidance's terms."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, ends: Sequence[int]) -> None:
        self.eos_token_id = ends[0]
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        self.special_token_ids = [token for token in {*tokenizer.special_ids, *ends} if token < vocab_size]
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", "replace"))


def _vocabulary(tokenizer: Tokenizer, vocab_size: int, ends: list[int]) -> llguidance.LLTokenizer:
    wrapper = llguidance.TokenizerWrapper(_Vocabulary(tokenizer, vocab_size, ends))
    return llguidance.LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=ends)


def _check_size(constraint: Constraint) -> None:
    text = constraint.text
    sizes = (
        ("characters", len(text), MAX_TEXT),
        ("lines", text.count("\n") + 1, MAX_LINES),
        ("brackets", text.count("[") + text.count("{"), MAX_BRACKETS),
    )
    for what, size, most in sizes:
        if size > most:
            raise _unusable(constraint, f"it has {size} {what}; at most {most} are taken")


def _compiled(vocabulary: llguidance.LLTokenizer, constraint: Constraint) -> llguidance.LLMatcher:
    limits = llguidance.LLParserLimits(initial_lexer_fuel=LEXER_FUEL)
    matcher = llguidance.LLMatcher(vocabulary, _grammar(constraint), log_level=0, limits=limits)
    if fault := _fault(matcher):
        raise _unusable(constraint, fault)
    return matcher


_stack_size = threading.Lock()


def _with_room(work: Callable[[], _T]) -> _T:
    """`work()`, in a thread of so large a stack that no rule exhausts it: that would end the whole process."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    with _stack_size:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return done.result()


def _grammar(constraint: Constraint) -> str:
    """In llguidance's own notation."""
    try:
        match constraint.kind:
            case "json_schema":
                return llguidance.LLMatcher.grammar_from_json_schema(
                    constraint.text, defaults={"whitespace_pattern": WHITE_SPACE}
                )
            case "regex":
                return llguidance.LLMatcher.grammar_from_regex(constraint.text)
            case "grammar":
                return llguidance.grammar_from("grammar", constraint.text)
    except ValueError as error:
        raise _unusable(constraint, str(error)) from None


def inline_json(schema: Any, *, lenient: bool) -> str:
    """A JSON schema as a part of a Lark grammar; its references are to itself."""
    options = {"whitespace_pattern": WHITE_SPACE, "lenient": lenient}
    return "%json " + json.dumps({**schema, "x-guidance": options})


def _fault(matcher: llguidance.LLMatcher) -> str:
    """What is wrong with it, if that shows at the first tokens: better now than in the midst of an answer.

    Its own first mask is computed here, not between steps.
    """
    matcher.compute_bitmask()
    tried = matcher if matcher.is_error() else matcher.deep_copy()
    for _ in range(TRIED):
        bits = np.frombuffer(tried.compute_bitmask(), np.uint8)
        allowed = np.flatnonzero(bits)
        if tried.is_error() or tried.is_stopped() or not len(allowed):
            break
        at = int(allowed[0])
        byte = int(bits[at])
        tried.consume_token(8 * at + (byte & -byte).bit_length() - 1)
    return str(tried.get_error()) if tried.is_error() else ""


def _unusable(constraint: Constraint, reason: str) -> RequestError:
    return RequestError(
        f"{constraint.param!r} cannot be used: {_first_line(reason)[:300]}",
        param=constraint.param,
        code="invalid_schema" if constraint.kind == "json_schema" else "invalid_grammar",
    )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
