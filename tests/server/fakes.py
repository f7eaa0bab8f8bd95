"""A model that does not exist on the real engine: a token per byte, drawn by FakeRunner or from a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sapwood.cache import HitRateCurve, PrefixCache
from sapwood.chat import ChatTemplate, Detokenizer, Guides, Tokenizer, TokenizerFacts
from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.engine import Engine, EngineLoop, ModelFacts
from sapwood.model.fake import FakeRunner
from sapwood.plan import SampleOrder
from sapwood.types import SamplingDefaults, TokenLogprob

EOS, START, END = 256, 257, 258
SPECIAL = {EOS: "</s>", START: "<|start|>", END: "<|end|>"}
VOCAB = 259
TEMPLATE = (
    "{% if shout %}!{% endif %}"
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """Token = byte; three control tokens above."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    description = {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
        "pre_tokenizer": level,
        "decoder": level,
        "added_tokens": [
            {
                "id": token,
                "content": text,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for token, text in SPECIAL.items()
        ],
    }
    return Tokenizer(description, TokenizerFacts(eos_id=EOS, vocab_size=VOCAB))


class ScriptedRunner(FakeRunner):
    """Draws the bytes of `script` in turn, then the end token. Without a script, what FakeRunner draws."""

    script: bytes | None = None

    def _draw(self, prefix_sum: int, order: SampleOrder) -> TokenLogprob:
        drawn = super()._draw(prefix_sum, order)
        if self.script is None:
            return drawn
        at = len(order.history) - order.prompt_len
        token = self.script[at] if at < len(self.script) else EOS
        if order.params.logprobs is None:
            return TokenLogprob(token, 0.0)
        return self._entry(self._logprobs(prefix_sum), token, order.params.logprobs)


@dataclass(frozen=True, slots=True)
class FakeFacts:
    model: str = "toy"
    fingerprint: str = "0123456789abcdef0123"
    exact: bool = True
    ops: str = "fake"
    compute: str = "auto"
    vocab_size: int = VOCAB
    max_context: int = 4096
    page_size: int = 1
    capacity_pages: int = 8192
    max_running: int = 32
    kv_bytes_per_token: int = 16
    kv_memory: int = 8192 * 16
    kv_memory_reason: str = "as the test wants it"
    sampling: SamplingDefaults = SamplingDefaults()  # noqa: RUF009  (frozen)
    notices: tuple[str, ...] = ()
    pin_tokens: int = 2048
    policies: Mapping[str, str] = field(
        default_factory=lambda: {"eviction": "lru", "schedule": "lpm", "prefix_index": "radix"}
    )


@dataclass(frozen=True, slots=True)
class FakeBuilt:
    loop: EngineLoop
    tokenizer: Tokenizer
    template: ChatTemplate
    facts: FakeFacts
    runner: ScriptedRunner


def build_fake(
    facts: FakeFacts | None = None, *, script: bytes | None = None, template: str = TEMPLATE
) -> FakeBuilt:
    """A running engine over a fake model."""
    facts = facts or FakeFacts()
    tokenizer = byte_tokenizer()
    runner = ScriptedRunner(facts.vocab_size, facts.page_size, facts.capacity_pages)
    runner.script = script
    model = ModelFacts(facts.fingerprint, facts.max_context, facts.vocab_size, (EOS,))
    config = CacheConfig(
        page_size=facts.page_size,
        prefix_index=facts.policies["prefix_index"],  # type: ignore[arg-type]
        eviction_policy=facts.policies["eviction"],  # type: ignore[arg-type]
    )
    engine = Engine(
        runner,
        PrefixCache(facts.capacity_pages, config),
        SchedulerConfig(max_running=facts.max_running),
        model,
        lambda prompt: Detokenizer(tokenizer, prompt),
        reuse=config.prefix_index != "none",
        curve=HitRateCurve(facts.capacity_pages * facts.page_size, config),
        pin_tokens=facts.pin_tokens,
        paranoid=True,
        guides=Guides(tokenizer, facts.vocab_size, (EOS,)),
    )
    return FakeBuilt(
        EngineLoop(engine).start(), tokenizer, ChatTemplate.for_tokenizer(template, tokenizer), facts, runner
    )
