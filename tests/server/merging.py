"""A fake model that says `t`, `h` where its tokenizer would write `th`: its answers encode to other tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sapwood.chat import ChatTemplate, Tokenizer, TokenizerFacts
from server.conftest import Served, serving_built
from server.fakes import EOS, SPECIAL, VOCAB, FakeBuilt, FakeFacts, build_fake, byte_tokenizer

MERGED = VOCAB
"""The id of `th`, or of another pair."""
TEMPLATE = (
    "{% if tools %}<|start|>system\n{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def merging_tokenizer(pair: bytes = b"th") -> Tokenizer:
    """A token per byte, and one for the pair."""
    plain = byte_tokenizer()
    letters = {byte: str(plain._trusting.id_to_token(byte)) for byte in range(256)}
    left, right = (letters[byte] for byte in pair)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {letter: byte for byte, letter in letters.items()}
    vocab |= {text: token for token, text in SPECIAL.items()} | {left + right: MERGED}
    special = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    description = {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": vocab, "merges": [[left, right]]},
        "pre_tokenizer": level,
        "decoder": level,
        "added_tokens": [{"id": token, "content": text, **special} for token, text in SPECIAL.items()],
    }
    return Tokenizer(json.loads(json.dumps(description)), TokenizerFacts(eos_id=EOS, vocab_size=VOCAB + 1))


def build_merging(source: str = TEMPLATE, pair: bytes = b"th") -> FakeBuilt:
    """A running engine; what it says is set by its runner's script, one token a byte."""
    built, tokenizer = build_fake(FakeFacts(vocab_size=VOCAB + 1)), merging_tokenizer(pair)
    template = ChatTemplate.for_tokenizer(source, tokenizer)
    return replace(built, tokenizer=tokenizer, template=template)


@contextmanager
def serving_merging(source: str = TEMPLATE, pair: bytes = b"th", **settings: object) -> Iterator[Served]:
    with serving_built(build_merging(source, pair), **settings) as served:  # type: ignore[arg-type]
        yield served
