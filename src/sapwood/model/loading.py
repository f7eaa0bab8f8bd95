"""From a model's name to something that runs: weights packed for this machine's ops, and pages to write KV in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sapwood.model import kv
from sapwood.model.checkpoint import load_checkpoint
from sapwood.model.decoder import Decoder
from sapwood.model.gguf_convert import requantize
from sapwood.model.memory import KvMemory, default_kv_memory
from sapwood.model.ops_native import NativeOps, missing_features
from sapwood.model.ops_reference import ReferenceOps
from sapwood.model.pull import KNOWN_MODELS, resolve
from sapwood.model.recommended import recommended_sampling
from sapwood.model.runner import ModelRunner
from sapwood.model.tensor import BLOCK_BYTES

if TYPE_CHECKING:
    from sapwood.config import Compute, KvDtype, ModelConfig, WeightFormat
    from sapwood.model.checkpoint import Checkpoint, VocabSource
    from sapwood.model.ops import Ops
    from sapwood.model.spec import ModelSpec
    from sapwood.model.tensor import RawTensor, TensorFormat
    from sapwood.types import SamplingDefaults

Progress = Callable[[str], None]

_FORMATS: Mapping[str, TensorFormat] = MappingProxyType(
    {"f32": "f32", "f16": "f16", "q8": "q8_0", "q4": "q4_1"}
)
_KEPT = ("norm", "bias", "router")
"""Vectors, and what chooses the experts: a small matrix whose rounding would send tokens elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A loaded model and its pages.

    Attributes:
        fingerprint: hex; differs wherever KV would (weights, formats, compute, rope, KV type): every namespace's root.
        vocab, chat_template: plain data for the chat room.
        kv_memory: bytes of pages and why that many.
        sampling: what the model's makers recommend where a client says nothing.
        notices: what the operator should know.
    """

    name: str
    spec: ModelSpec
    fingerprint: str
    runner: ModelRunner
    vocab: VocabSource | None
    chat_template: str | None
    kv_memory: KvMemory
    sampling: SamplingDefaults
    notices: tuple[str, ...]

    @property
    def ops(self) -> Ops:
        return self.runner.decoder.ops

    @property
    def pages(self) -> int:
        return self.runner.kv.pages

    @property
    def kv_bytes_per_token(self) -> int:
        return kv.bytes_per_token(self.spec, self.runner.kv.dtype)


def load_model(config: ModelConfig, page_size: int, progress: Progress | None = None) -> Model:
    """Finds (or fetches), reads and packs a model and allocates its pages.

    Raises UsageError for a bad name or too little memory, ModelError for a file that cannot be used.
    """
    tell = progress or (lambda _: None)
    path = resolve(config.model, progress=tell)
    checkpoint = load_checkpoint(path)
    checkpoint = _with_weights(checkpoint, config.weights)
    memory = default_kv_memory() if config.kv_memory is None else KvMemory(config.kv_memory, "as given")
    kv.check_memory(checkpoint.spec, memory.nbytes, page_size, config.kv_dtype)
    ops, ops_notices = choose_ops(config.threads, config.compute)

    def packed(layer: int, layers: int) -> None:
        tell(f"packing weights: layer {layer} of {layers}")

    decoder = Decoder(checkpoint.spec, checkpoint.tensors, ops, packed)
    pool = kv.allocate(checkpoint.spec, memory.nbytes, page_size, config.kv_dtype)
    return Model(
        name=config.model if config.model in KNOWN_MODELS else checkpoint.name,
        spec=checkpoint.spec,
        fingerprint=_fingerprint(checkpoint, config.kv_dtype, ops),
        runner=ModelRunner(decoder, pool),
        vocab=checkpoint.vocab,
        chat_template=checkpoint.chat_template,
        kv_memory=memory,
        sampling=recommended_sampling(config.model, path),
        notices=checkpoint.notices + ops_notices,
    )


def choose_ops(threads: int | None = None, compute: Compute = "auto") -> tuple[Ops, tuple[str, ...]]:
    """The native ops, or the reference ones with a notice where this CPU cannot run those."""
    missing = missing_features()
    if missing:
        needs = ", ".join(sorted(missing))
        return ReferenceOps(compute), (
            f"this CPU lacks {needs}: the reference ops run instead, and are very slow",
        )
    return NativeOps(available_cores() if threads is None else threads, compute), ()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_weights(checkpoint: Checkpoint, weights: WeightFormat) -> Checkpoint:
    """The matrices in another format; vectors and routers stay.

    Rows that blocks do not divide become f16, with a notice.
    """
    if weights == "auto":
        return checkpoint
    wanted, kept = _FORMATS[weights], 0
    tensors: dict[str, RawTensor] = {}
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(_KEPT):
            tensors[name] = tensor
            continue
        fits = not wanted.startswith("q") or tensor.cols % 32 == 0
        kept += not fits
        tensors[name] = requantize(tensor, wanted if fits else "f16")
    notices = checkpoint.notices
    if kept:
        notices += (
            f"{kept} tensors have rows that are no multiple of 32 and are kept as f16, not {weights}",
        )
    return replace(
        checkpoint, tensors=tensors, notices=notices, fingerprint=f"{checkpoint.fingerprint}/{wanted}"
    )


def _fingerprint(checkpoint: Checkpoint, dtype: KvDtype, ops: Ops) -> str:
    """`compute` counts only where there is a matrix that it changes the products of."""
    blocks = any(tensor.format in BLOCK_BYTES for tensor in checkpoint.tensors.values())
    compute = f"|compute={ops.compute}" if blocks else ""
    return hashlib.sha256(f"{checkpoint.fingerprint}|kv={dtype}{compute}".encode()).hexdigest()
