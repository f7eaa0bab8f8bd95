"""Between text and token ids, both ways; special tokens and text that spells them are kept apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tokenizers

from sapwood.chat.gguf_vocab import read_gguf_vocab
from sapwood.chat.vocab_bytes import spelling_of
from sapwood.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A control token. `lstrip`, `rstrip`: it swallows the white space before, after it."""

    id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """What a tokenizer.json does not say. None takes what can be found out: `add_bos` by trying."""

    bos_id: int | None = None
    eos_id: int | None = None
    add_bos: bool | None = None
    vocab_size: int | None = None


class Tokenizer:
    """A model's tokenizer over the `tokenizers` library. Immutable; encodes from any thread.

    Attributes:
        vocab_size: ids are below this (a model may have more logits).
        bos_id, eos_id: start and end token, or None.
        add_bos: a plain prompt (no chat template) is to start with `bos_id`.
        special_tokens: the control tokens; added tokens such as `<tool_call>` are not among them.
        special_ids: their ids.
        strips_first_space: decoding drops the space that encoding puts before a text.
    """

    def __init__(self, description: Mapping[str, Any], facts: TokenizerFacts) -> None:
        """`description` is a parsed tokenizer.json. Raises ModelError if it makes no tokenizer."""
        self._spelling = spelling_of(description.get("decoder"))
        self.strips_first_space = self._spelling.strips_first_space
        self._trusting = _build(description)
        self._plain = _sibling(self._trusting, description)
        self._plain.encode_special_tokens = True
        self._trusting_later, self._plain_later = self._trusting, self._plain
        later = _in_mid_flow(description)
        if later is not None:
            self._trusting_later, self._plain_later = _build(later), _build(later)
            self._plain_later.encode_special_tokens = True
        added = self._trusting.get_added_tokens_decoder()
        self._added: dict[int, str] = {i: token.content for i, token in added.items()}
        self.special_tokens = tuple(
            SpecialToken(i, token.content, token.lstrip, token.rstrip)
            for i, token in added.items()
            if token.special and token.content
        )
        self.special_ids = frozenset(token.id for token in self.special_tokens)
        self.bos_id, self.eos_id = facts.bos_id, facts.eos_id
        self.add_bos = (
            self._adds_bos() if facts.add_bos is None else facts.add_bos and facts.bos_id is not None
        )
        largest = max(self._trusting.get_vocab(with_added_tokens=True).values(), default=-1)
        self.vocab_size = facts.vocab_size or largest + 1
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_json(cls, path: Path, config: Mapping[str, object] | None = None) -> Tokenizer:
        """From a `tokenizer.json` and the parsed `tokenizer_config.json` beside it. Raises ModelError."""
        try:
            description = json.loads(path.read_bytes())
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is not JSON: {error}") from error
        if not isinstance(description, dict):
            raise ModelError(f"{path} holds no tokenizer: an object was expected")
        ids = _ids_by_text(description)
        named = config or {}
        add_bos = named.get("add_bos_token")
        facts = TokenizerFacts(
            bos_id=ids.get(_named_token(named, "bos_token")),
            eos_id=ids.get(_named_token(named, "eos_token")),
            add_bos=add_bos if isinstance(add_bos, bool) else None,
        )
        return cls(description, facts)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """From the `tokenizer.*` facts of a GGUF file. Raises ModelError naming the key at fault."""
        vocab = read_gguf_vocab(metadata)
        facts = TokenizerFacts(vocab.bos_id, vocab.eos_id, vocab.add_bos, vocab.tokens)
        return cls(vocab.description, facts)

    def encode(self, text: str, *, special: bool = False, continues: bool = False) -> list[int]:
        """Token ids of `text`, without start or end token.

        With `special` false no control token comes out, whatever the text spells; with it true the text is
        trusted and spellings of control tokens become them. `continues`: other text comes before this
        one, for tokenizers that put a space before a text's beginning. Lone surrogates are read as U+FFFD.
        """
        if special:
            encoder = self._trusting_later if continues else self._trusting
        else:
            encoder = self._plain_later if continues else self._plain
        # The batch call lets other threads run meanwhile; the single one holds the interpreter.
        batch = encoder.encode_batch_fast([_without_surrogates(text)], add_special_tokens=False)
        ids: list[int] = batch[0].ids
        if special or self.special_ids.isdisjoint(ids):
            return ids
        return [piece for i in ids for piece in self._spelled_out(i, text)]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD, ids without an entry are nothing."""
        kept = (i for i in ids if not (skip_special and i in self.special_ids))
        text = b"".join(self.token_bytes(i) for i in kept).decode("utf-8", "replace")
        return text[1:] if self.strips_first_space and text.startswith(" ") else text

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; may be part of a character; empty for an id without an entry."""
        known = self._bytes.get(token)
        if known is None:
            known = self._read_bytes(token)
            if 0 <= token < self.vocab_size:
                self._bytes[token] = known
        return known

    def _read_bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        entry = self._trusting.id_to_token(token) if 0 <= token < self.vocab_size else None
        return b"" if entry is None else self._spelling.to_bytes(entry)

    def token_text(self, token: int) -> str:
        """The token's bytes as text, U+FFFD for what is no UTF-8."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_id(self, text: str) -> int | None:
        """The id of an entry by its spelling in the vocabulary, or None."""
        found: int | None = self._trusting.token_to_id(text)
        return found

    def _adds_bos(self) -> bool:
        start = self._trusting.encode("a").ids[:1]
        return self.bos_id is not None and start == [self.bos_id]

    def _spelled_out(self, token: int, text: str) -> list[int]:
        """A control token that merging reached (SentencePiece merges can), in its characters."""
        if token not in self.special_ids or self._added[token] not in text:
            return [token]
        pieces = [self._trusting.token_to_id(char) for char in self._added[token]]
        return [piece for piece in pieces if piece is not None]


def _build(description: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        built = tokenizers.Tokenizer.from_str(json.dumps(description))
    except Exception as error:  # the library raises bare Exception for whatever is wrong
        raise ModelError(f"the tokenizer's description is not usable: {error}") from error
    built.no_truncation()
    built.no_padding()
    return built


def _sibling(first: tokenizers.Tokenizer, description: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Another tokenizer that encodes alike and shares the merges, slow to build for 128k entries."""
    sibling = tokenizers.Tokenizer(first.model)
    if first.normalizer is not None:
        sibling.normalizer = first.normalizer
    if first.pre_tokenizer is not None:
        sibling.pre_tokenizer = first.pre_tokenizer
    added = first.get_added_tokens_decoder()
    sibling.add_tokens([added[i] for i in sorted(added)])
    return sibling if sibling.get_added_tokens_decoder() == added else _build(description)


def _in_mid_flow(description: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The description for text in mid-flow, if the pre-tokenizer marks a text's first word only."""
    pre = json.dumps(description.get("pre_tokenizer"))
    first = '"prepend_scheme": "first"'
    if first not in pre:
        return None
    return {**description, "pre_tokenizer": json.loads(pre.replace(first, '"prepend_scheme": "never"'))}


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _ids_by_text(description: Mapping[str, Any]) -> Mapping[str | None, int]:
    model = description.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids: dict[str | None, int] = dict(vocab) if isinstance(vocab, dict) else {}
    added = description.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if (
            isinstance(token, dict)
            and isinstance(token.get("content"), str)
            and isinstance(token.get("id"), int)
        ):
            ids[token["content"]] = token["id"]
    return ids


def _named_token(config: Mapping[str, object], key: str) -> str | None:
    named = config.get(key)
    if isinstance(named, dict):
        named = named.get("content")
    return named if isinstance(named, str) else None
