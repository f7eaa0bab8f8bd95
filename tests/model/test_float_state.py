"""What the kernels give in a thread whose floats were set otherwise, as libraries built with -ffast-math leave it."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from model.scene import floats
from sapwood.model.ops import Norm
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps
from sapwood.model.tensor import RawTensor
from sapwood.types import SamplingParams

FLUSH = 0x8040
"""Two bits of x86's MXCSR: results that are subnormal become zero, and so do operands."""
UPWARD = 0x4000
"""Another: rounding is towards infinity."""


class Environment(ctypes.Structure):
    """glibc's fenv_t on x86-64."""

    _fields_: ClassVar = [("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32)]


class FloatThread:
    """The calling thread's floats."""

    def __init__(self) -> None:
        if sys.platform != "linux" or platform.machine() != "x86_64":
            pytest.skip("sets MXCSR by glibc's fesetenv")
        self._libm = ctypes.CDLL("libm.so.6")

    @property
    def environment(self) -> Environment:
        found = Environment()
        assert self._libm.fegetenv(ctypes.byref(found)) == 0
        return found

    @contextmanager
    def with_bits(self, bits: int) -> Iterator[None]:
        before, other = self.environment, self.environment
        other.mxcsr |= bits
        self._libm.fesetenv(ctypes.byref(other))
        try:
            yield
        finally:
            self._libm.fesetenv(ctypes.byref(before))


@dataclass(frozen=True, slots=True)
class Work:
    """Ops whose results are subnormal."""

    x: NDArray[np.float32]
    faint: NDArray[np.float32]
    plain: RawTensor
    gate: RawTensor
    blocks: RawTensor
    norm: Norm
    logits: NDArray[np.float32]

    def outcome(self, ops: Any) -> list[bytes]:
        outs = [np.empty((len(self.x), width), np.float32) for width in (70, 70, 20, 64, 64)]
        plain, gate, blocks = (ops.pack([each]) for each in (self.plain, self.gate, self.blocks))
        ops.linear(self.x, plain, outs[0])
        ops.gated_linear(self.x, gate, plain, outs[1])
        ops.linear(self.faint, blocks, outs[2])
        ops.rms_norm(self.x, self.norm, outs[3])
        ops.embed(self.plain, np.arange(len(self.x), dtype=np.int32) % 70, outs[4], scale=2.0**-66)
        greedy = ops.pick([self.logits], [SamplingParams(temperature=0.0)], [0.0])
        return [each.tobytes() for each in (*outs, greedy.tokens, ops.rank([self.logits], 3).tokens)]


@pytest.fixture(scope="module")
def work() -> Work:
    rng = np.random.default_rng(9)

    def about(exponent: int, *shape: int) -> NDArray[np.float32]:
        return floats(rng, *shape) * np.float32(2.0**exponent)

    blocks = rng.integers(0, 256, (20, 2, 34), dtype=np.uint8)
    blocks[:, :, :2] = np.full((20, 2, 1), 1e-4, np.float16).view(np.uint8)
    return Work(
        about(-66, 100, 64),
        about(-124, 100, 64),
        RawTensor("w", "f32", 70, 64, about(-66, 70, 64)),
        RawTensor("gate", "f32", 70, 64, about(66, 70, 64)),
        RawTensor("blocks", "q8_0", 20, 64, blocks.reshape(20, 68)),
        Norm(about(-70, 64), 2.0**-17),
        np.array([1e-40, 3e-40, 2e-40], np.float32),
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bits", [FLUSH, UPWARD])
def test_the_kernels_compute_as_ever_whatever_the_threads_floats_are_set_to(
    work: Work, bits: int, threads: int
) -> None:
    floats_here = FloatThread()
    expected = work.outcome(ReferenceOps())
    with floats_here.with_bits(bits):
        found = work.outcome(NativeOps(threads))
        left = floats_here.environment.mxcsr
    assert found == expected
    assert left & bits == bits, "what the thread had set is as it was"


def test_the_work_shows_what_flushing_does(work: Work) -> None:
    """Else the test above would tell nothing: numpy computes with whatever is set."""
    floats_here = FloatThread()
    expected = work.outcome(ReferenceOps())
    with floats_here.with_bits(FLUSH):
        found = work.outcome(ReferenceOps())
    assert [a == b for a, b in zip(found, expected, strict=True)] == [False] * len(expected)
