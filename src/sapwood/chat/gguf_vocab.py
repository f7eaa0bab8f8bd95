"""Rebuilds a tokenizer.json from the vocabulary that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sapwood.errors import ModelError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_PREFIX = "tokenizer.ggml."
_SPACE = "▁"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a byte-level model's text is cut before merging.

    Attributes:
        pattern: cut into matches of this; None is GPT-2's own pattern.
        single_digits: every digit is cut off first.
        nfc: text is composed (Unicode NFC) first.
        whole_words: a piece that is an entry of the vocabulary is that entry, without merging.
        add_bos: the start token comes first unless the file says otherwise.
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2_ROW = PreTokenizer()
_DIGITS_ROW = PreTokenizer(single_digits=True)
_LLAMA3_ROW = PreTokenizer(_LLAMA3, whole_words=True, add_bos=True)
_QWEN2_ROW = PreTokenizer(_QWEN2, nfc=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "default": _GPT2_ROW,
        "gpt-2": _GPT2_ROW,
        "gpt2": _GPT2_ROW,
        "smollm": _DIGITS_ROW,
        "starcoder": _DIGITS_ROW,
        "refact": _DIGITS_ROW,
        "llama-bpe": _LLAMA3_ROW,
        "llama-v3": _LLAMA3_ROW,
        "llama3": _LLAMA3_ROW,
        "qwen2": _QWEN2_ROW,
        "deepseek-r1-qwen": _QWEN2_ROW,
        "dbrx": PreTokenizer(_LLAMA3),
        "gpt-4o": PreTokenizer(_O200K),
    }
)
"""`tokenizer.ggml.pre` → how text is cut; the rows repeat what the models' own tokenizer.json say."""


@dataclass(frozen=True, slots=True)
class GgufVocab:
    """A GGUF vocabulary as a tokenizer.json (`description`), and what that format does not say.

    `tokens` counts entries, also unused ones; ids are None where the file names none.
    """

    description: Mapping[str, Any]
    tokens: int
    bos_id: int | None
    eos_id: int | None
    add_bos: bool


def read_gguf_vocab(metadata: Mapping[str, object]) -> GgufVocab:
    """Raises ModelError naming the key that is missing, malformed or of a kind not known here."""
    kind = metadata.get(f"{_PREFIX}model")
    tokens = _texts(metadata, "tokens")
    kinds = _kinds(metadata, len(tokens))
    if kind == "gpt2":
        pre = _pre_tokenizer(metadata)
        description, add_bos = _byte_level(metadata, tokens, kinds, pre), pre.add_bos
    elif kind == "llama":
        description, add_bos = _sentencepiece(metadata, tokens, kinds), True
    else:
        raise ModelError(f"the vocabulary '{_PREFIX}model' is {kind!r}; gpt2 and llama are supported")
    return GgufVocab(
        description,
        len(tokens),
        bos_id=_token_id(metadata, "bos", len(tokens)),
        eos_id=_token_id(metadata, "eos", len(tokens)),
        add_bos=metadata.get(f"{_PREFIX}add_bos_token", add_bos) is True,
    )


def _pre_tokenizer(metadata: Mapping[str, object]) -> PreTokenizer:
    name = metadata.get(f"{_PREFIX}pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise ModelError(
            f"the pre-tokenizer '{_PREFIX}pre' is {name!r}; known are {', '.join(PRE_TOKENIZERS)}",
            hint="use the safetensors folder of this model, which brings its tokenizer.json",
        )
    return PRE_TOKENIZERS[name]


def _byte_level(
    metadata: Mapping[str, object], tokens: list[str], kinds: list[int], pre: PreTokenizer
) -> dict[str, Any]:
    merges = [merge.partition(" ")[::2] for merge in _texts(metadata, "merges")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps: list[dict[str, Any]] = []
    if pre.single_digits:
        steps.append({"type": "Digits", "individual_digits": True})
    if pre.pattern is not None:
        cut = {"type": "Split", "pattern": {"Regex": pre.pattern}, "behavior": "Isolated", "invert": False}
        steps.append(cut)
    steps.append({**byte_level, "use_regex": pre.pattern is None})
    return _description(
        tokens,
        kinds,
        normalizer={"type": "NFC"} if pre.nfc else None,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={**byte_level, "use_regex": True},
        model={"merges": [list(pair) for pair in merges], "ignore_merges": pre.whole_words},
    )


def _sentencepiece(metadata: Mapping[str, object], tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefixed = metadata.get(f"{_PREFIX}add_space_prefix", True) is True
    unknown = _token_id(metadata, "unknown", len(tokens))
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefixed:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    prefix = [{"type": "Prepend", "prepend": _SPACE}] if prefixed else []
    return _description(
        tokens,
        kinds,
        normalizer={"type": "Sequence", "normalizers": [*prefix, spaces]},
        pre_tokenizer=None,
        decoder={"type": "Sequence", "decoders": decoders},
        model={
            "merges": _merges_from_scores(tokens, kinds, _scores(metadata, len(tokens))),
            "unk_token": None if unknown is None else tokens[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
        },
    )


def _merges_from_scores(tokens: list[str], kinds: list[int], scores: list[float]) -> list[list[str]]:
    """SentencePiece's scores as ranked merges: every split of an entry into two entries, best score first."""
    ids = {text: i for i, (text, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == _NORMAL}
    found: list[tuple[float, list[str]]] = []
    for text, i in ids.items():
        pairs = [[text[:cut], text[cut:]] for cut in range(1, len(text))]
        known = sorted(
            (p for p in pairs if p[0] in ids and p[1] in ids), key=lambda p: (ids[p[0]], ids[p[1]])
        )
        found.extend((scores[i], pair) for pair in known)
    found.sort(key=lambda scored: -scored[0])
    return [pair for _, pair in found]


def _description(
    tokens: list[str], kinds: list[int], *, model: dict[str, Any], **parts: Any
) -> dict[str, Any]:
    vocab: dict[str, int] = {}
    for i, text in enumerate(tokens):
        vocab.setdefault(text, i)
    return {
        "version": "1.0",
        "added_tokens": [
            _added_token(i, tokens[i], special=kind in (_CONTROL, _UNKNOWN))
            for i, kind in enumerate(kinds)
            if kind in (_CONTROL, _UNKNOWN, _USER_DEFINED) and vocab[tokens[i]] == i
        ],
        "post_processor": None,
        **parts,
        "model": {"type": "BPE", "vocab": vocab, **model},
    }


def _added_token(i: int, text: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": i, "content": text, "special": special, **flags}


def _texts(metadata: Mapping[str, object], key: str) -> list[str]:
    found = metadata.get(f"{_PREFIX}{key}")
    if not isinstance(found, list) or not found or not all(isinstance(text, str) for text in found):
        raise ModelError(f"the vocabulary needs '{_PREFIX}{key}', a list of texts")
    return found


def _kinds(metadata: Mapping[str, object], count: int) -> list[int]:
    found = metadata.get(f"{_PREFIX}token_type", [_NORMAL] * count)
    if not isinstance(found, list) or len(found) != count:
        raise ModelError(
            f"the vocabulary needs '{_PREFIX}token_type' to have one kind for each of {count} tokens"
        )
    return found


def _scores(metadata: Mapping[str, object], count: int) -> list[float]:
    found = metadata.get(f"{_PREFIX}scores")
    if not isinstance(found, list) or len(found) != count:
        raise ModelError(f"the vocabulary needs '{_PREFIX}scores', a number for each of {count} tokens")
    return found


def _token_id(metadata: Mapping[str, object], role: str, count: int) -> int | None:
    key = f"{_PREFIX}{role}_token_id"
    found = metadata.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or not 0 <= found < count:
        raise ModelError(f"'{key}' is {found!r}; the vocabulary has {count} tokens")
    return found
