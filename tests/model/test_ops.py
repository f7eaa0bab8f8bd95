"""The native kernels against their slow twin, bit for bit, and against themselves across rows, threads and splits."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.scene import floats, same, spans
from sapwood.config import Compute
from sapwood.errors import UsageError
from sapwood.model import _native
from sapwood.model.gguf_convert import to_f32
from sapwood.model.kv import KvPool
from sapwood.model.ops import Activation, HeadLayout, HeadNorms, Norm, RopeTables
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps
from sapwood.model.tensor import BLOCK_BYTES, RawTensor, TensorFormat

FORMATS: list[TensorFormat] = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"]
ONE, TWO, TWIN = NativeOps(1), NativeOps(2), ReferenceOps()
ONE_F32, TWO_F32, TWIN_F32 = NativeOps(1, "f32"), NativeOps(2, "f32"), ReferenceOps("f32")
ONE_INT8, TWO_INT8, TWIN_INT8 = NativeOps(1, "int8"), NativeOps(2, "int8"), ReferenceOps("int8")
WAYS = {
    "auto": (TWIN, ONE, TWO),
    "f32": (TWIN_F32, ONE_F32, TWO_F32),
    "int8": (TWIN_INT8, ONE_INT8, TWO_INT8),
}
"""By `compute`: the twin, then the native ops on one and on two threads."""


def weight(rng: np.random.Generator, format: TensorFormat, rows: int, cols: int) -> RawTensor:
    values = rng.standard_normal((rows, cols)).astype(np.float32)
    data: NDArray[Any]
    if format == "f32":
        data = values
    elif format == "f16":
        data = values.astype(np.float16)
    elif format == "bf16":
        data = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        size = BLOCK_BYTES[format]
        blocks = rng.integers(0, 256, (rows, cols // 32, size), dtype=np.uint8)
        heads = (size - (32 if format == "q8_0" else 16)) // 2
        scales = rng.standard_normal((rows, cols // 32, heads)).astype(np.float16)
        blocks[:, :, : 2 * heads] = scales.view(np.uint8)
        data = blocks.reshape(rows, -1)
    return RawTensor("w", format, rows, cols, data)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    compute=st.sampled_from(["auto", "f32", "int8"]),
    format=st.sampled_from(FORMATS),
    rows=st.integers(0, 25),
    outputs=st.integers(1, 40),
    blocks=st.integers(1, 3),
    with_norm=st.booleans(),
    with_bias=st.booleans(),
    accumulate=st.booleans(),
)
def test_linear_equals_its_twin(
    seed: int, compute: str, format: TensorFormat, rows: int, outputs: int, blocks: int, with_norm: bool,
    with_bias: bool, accumulate: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    width = 32 * blocks
    raw = weight(rng, format, outputs, width)
    x, out = floats(rng, rows, width), floats(rng, rows, outputs)
    norm = Norm(floats(rng, width), 1e-5) if with_norm else None
    bias = floats(rng, outputs) if with_bias else None
    expected = out.copy()
    twin, *natives = WAYS[compute]
    twin.linear(x, twin.pack([raw]), expected, norm=norm, bias=bias, accumulate=accumulate)
    for ops in natives:
        got = out.copy()
        ops.linear(x, ops.pack([raw]), got, norm=norm, bias=bias, accumulate=accumulate)
        assert same(got, expected)


@pytest.mark.parametrize("variant", _native.integer_variants)
@pytest.mark.parametrize("compute", ["integer", "int8"])
@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_every_variant_of_this_machine_equals_the_twin(
    format: TensorFormat, compute: Compute, variant: str
) -> None:
    rng = np.random.default_rng(8)
    raw, ops = weight(rng, format, 37, 96), NativeOps(1, compute, variant=variant)
    twin = ReferenceOps(compute)
    for rows in (1, 2, 3, 4, 6, 8, 13):
        x, expected, got = floats(rng, rows, 96), *np.empty((2, rows, 37), np.float32)
        twin.linear(x, twin.pack([raw]), expected)
        ops.linear(x, ops.pack([raw]), got)
        assert same(got, expected)


def test_a_variant_that_the_machine_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="sse9"):
        NativeOps(1, variant="sse9").pack([weight(np.random.default_rng(0), "q8_0", 4, 32)])


EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    32767.0,
    -32768.0,
    32768.0,
    0.5,
    1.5,
    1e-45,
    -1e-38,
    2e-38,
    3e38,
    -3e38,
    65535.9,
    1e5,
)
"""Values at the borders of the 16-bit grid and of float32."""


@settings(max_examples=40)
@given(
    rows=st.lists(st.lists(st.sampled_from(EDGES), min_size=64, max_size=64), min_size=1, max_size=9),
    scales=st.lists(st.integers(-140, 100), min_size=9, max_size=9),
    format=st.sampled_from(["q8_0", "q4_0", "q4_1"]),
    compute=st.sampled_from(["auto", "int8"]),
)
def test_rows_are_rounded_as_their_twin_rounds_them(
    rows: list[list[float]], scales: list[int], format: TensorFormat, compute: str
) -> None:
    """Outliers, zeros, rows of zeros, the smallest and the largest floats."""
    with np.errstate(over="ignore", under="ignore"):
        powers = np.ldexp(np.float32(1), scales[: len(rows)])[:, None]
        x = np.clip(np.array(rows, np.float32) * powers, -3e38, 3e38).astype(np.float32)
    raw = weight(np.random.default_rng(3), format, 20, 64)
    expected, got = np.empty((len(x), 20), np.float32), np.empty((len(x), 20), np.float32)
    twin, _, two = WAYS[compute]
    twin.linear(x, twin.pack([raw]), expected)
    two.linear(x, two.pack([raw]), got)
    assert same(got, expected)


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("compute", ["auto", "int8"])
def test_a_row_that_is_not_finite_is_nan_and_touches_no_other(
    format: TensorFormat, bad: float, compute: str
) -> None:
    twin, one, _ = WAYS[compute]
    rng = np.random.default_rng(4)
    raw, x = weight(rng, format, 20, 96), floats(rng, 11, 96)
    clean, got, expected = (np.empty((11, 20), np.float32) for _ in range(3))
    one.linear(x, one.pack([raw]), clean)
    x[7, 50] = bad
    one.linear(x, one.pack([raw]), got)
    twin.linear(x, twin.pack([raw]), expected)
    assert same(got, expected)
    assert np.isnan(got[7]).all()
    assert same(np.delete(got, 7, 0), np.delete(clean, 7, 0))


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_integer_products_stay_near_float_ones(format: TensorFormat) -> None:
    """Within what rounding a row to 15 bits of its largest value may do: half a step of 2^-14 for each weight."""
    rng = np.random.default_rng(5)
    raw, x = weight(rng, format, 64, 576), floats(rng, 12, 576)
    x[3, 100] = 500.0
    rounded, plain = np.empty((12, 64), np.float32), np.empty((12, 64), np.float32)
    TWO.linear(x, TWO.pack([raw]), rounded)
    TWO_F32.linear(x, TWO_F32.pack([raw]), plain)
    step = np.abs(x).max(1, keepdims=True) * 2.0**-14
    limit = step / 2 * np.abs(to_f32(raw)).sum(1) + 1e-5 * np.abs(plain)
    assert not same(rounded, plain)
    assert (np.abs(rounded - plain) <= limit).all()


@pytest.mark.parametrize("compute", ["auto", "f32", "int8"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("width", [32, 576])
def test_a_row_does_not_depend_on_its_neighbours(format: TensorFormat, width: int, compute: str) -> None:
    _, one, two = WAYS[compute]
    rng = np.random.default_rng(1)
    packed = two.pack([weight(rng, format, 200, width)])
    x = floats(rng, 300, width)
    whole = np.empty((300, 200), np.float32)
    two.linear(x, packed, whole)
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 97):
        part = np.empty((count, 200), np.float32)
        one.linear(x[50 : 50 + count], packed, part)
        assert same(part, whole[50 : 50 + count]), f"{count} rows"


@pytest.mark.parametrize("rows", [0, 1, 3, 10])
@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize("compute", ["auto", "f32", "int8"])
def test_packing_several_matrices_keeps_each_format(rows: int, with_norm: bool, compute: str) -> None:
    twin, one, _ = WAYS[compute]
    rng = np.random.default_rng(2)
    raws = [weight(rng, "q4_1", 48, 64), weight(rng, "q8_0", 16, 64), weight(rng, "f16", 21, 64)]
    x = floats(rng, rows, 64)
    norm = Norm(floats(rng, 64), 1e-6) if with_norm else None
    together, expected = np.empty((rows, 85), np.float32), np.empty((rows, 85), np.float32)
    one.linear(x, one.pack(raws), together, norm=norm)
    twin.linear(x, twin.pack(raws), expected, norm=norm)
    assert same(together, expected)
    apart = [np.empty((rows, raw.rows), np.float32) for raw in raws]
    for raw, out in zip(raws, apart, strict=True):
        one.linear(x, one.pack([raw]), out, norm=norm)
    assert same(together, np.concatenate(apart, axis=1))


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 8, 11])
@pytest.mark.parametrize("formats", [("q4_1", "q8_0"), ("q4_1", "q4_1"), ("q4_0", "f16"), ("f32", "f32")])
@pytest.mark.parametrize("compute", ["auto", "f32", "int8"])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated_linear_equals_its_twin(
    rows: int, formats: tuple[TensorFormat, TensorFormat], compute: str, activation: Activation
) -> None:
    twin, _, two = WAYS[compute]
    rng = np.random.default_rng(rows)
    gate, up = (weight(rng, format, 37, 64) for format in formats)
    x, norm = floats(rng, rows, 64), Norm(floats(rng, 64), 1e-6)
    expected, got = np.empty((rows, 37), np.float32), np.empty((rows, 37), np.float32)
    twin.gated_linear(x, twin.pack([gate]), twin.pack([up]), expected, norm=norm, activation=activation)
    two.gated_linear(x, two.pack([gate]), two.pack([up]), got, norm=norm, activation=activation)
    assert same(got, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_activations_equal_their_twins_over_the_whole_range(activation: Activation) -> None:
    """The gate is the first input, the factor the second: what overflows inside the cubic included."""
    values = np.concatenate(
        [np.linspace(-100, 100, 4001), [0.0, -0.0, 1e-30, -1e-30, 1e15, -1e15, 1e30, -1e30]]
    )
    x = np.column_stack([values, np.ones(len(values))]).astype(np.float32)
    first, second = (RawTensor("w", "f32", 1, 2, np.array([row], np.float32)) for row in ((1, 0), (0, 0.5)))
    expected, got = np.empty((len(x), 1), np.float32), np.empty((len(x), 1), np.float32)
    TWIN.gated_linear(x, TWIN.pack([first]), TWIN.pack([second]), expected, activation=activation)
    ONE.gated_linear(x, ONE.pack([first]), ONE.pack([second]), got, activation=activation)
    assert np.isfinite(expected).all()
    assert same(got, expected)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("width", [1, 7, 8, 20, 576])
def test_rms_norm_equals_its_twin(width: int, accumulate: bool) -> None:
    rng = np.random.default_rng(width)
    x, norm = floats(rng, 19, width), Norm(floats(rng, width), 1e-5)
    before = floats(rng, 19, width)
    expected, got = before.copy(), before.copy()
    TWIN.rms_norm(x, norm, expected, accumulate=accumulate)
    TWO.rms_norm(x, norm, got, accumulate=accumulate)
    assert same(got, expected)


def test_shapes_that_do_not_fit_are_refused() -> None:
    packed = ONE.pack([weight(np.random.default_rng(0), "f32", 16, 32)])
    with pytest.raises(ValueError, match="shapes"):
        ONE.linear(np.zeros((1, 31), np.float32), packed, np.zeros((1, 16), np.float32))


def test_a_gate_cut_unlike_its_factor_is_refused() -> None:
    """Both have 37 outputs in four panels, but the panels do not cover the same ones."""
    rng = np.random.default_rng(0)
    gate, up = (ONE.pack([weight(rng, "f32", rows, 32) for rows in cut]) for cut in ((20, 17), (17, 20)))
    x, out = np.zeros((1, 32), np.float32), np.zeros((1, 37), np.float32)
    ONE.gated_linear(x, gate, gate, out)
    with pytest.raises(ValueError, match="gated_linear: shapes"):
        ONE.gated_linear(x, gate, up, out)


def test_arrays_of_another_type_are_refused_not_copied() -> None:
    packed = ONE.pack([weight(np.random.default_rng(0), "f32", 16, 32)])
    with pytest.raises(TypeError):
        ONE.linear(np.zeros((1, 32), np.float32), packed, np.zeros((1, 16), np.float64))


@pytest.mark.parametrize("threads", [0, -3, 100_000])
def test_a_senseless_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(UsageError, match="threads"):
        NativeOps(threads)


class Walked:
    """A layer over arrays that stay where they are, as a decoder walks it."""

    def __init__(self, ops: Any, rows: int, positions: int = 300) -> None:
        rng = np.random.default_rng(3)
        self.ops, self.layout = ops, HeadLayout(4, 2, 16)
        self.x, self.qkv = floats(rng, rows, 64), np.empty((rows, self.layout.qkv_width), np.float32)
        self.attended, self.gated = np.empty((rows, 64), np.float32), np.empty((rows, 40), np.float32)
        self.weights = [
            ops.pack([weight(rng, "q4_1", outputs, 64)]) for outputs in (self.layout.qkv_width, 64, 40, 40)
        ]
        self.norm, self.bias = Norm(floats(rng, 64), 1e-5), floats(rng, self.layout.qkv_width)
        self.head_norms = HeadNorms(floats(rng, 16), floats(rng, 16), 1e-6)
        angles = rng.standard_normal((positions, 8))
        self.rope = RopeTables(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
        shape = (1, 400, 1, 2, 16)
        k, v = rng.standard_normal((2, *shape)).astype(np.float16)
        self.kv = KvPool(k, v, "f16")

    def walk(self, plan: Any) -> None:
        qkv, o, gate, up = self.weights
        self.ops.linear(self.x, qkv, self.qkv, norm=self.norm, bias=self.bias)
        self.ops.rope_and_store(plan, self.qkv, self.layout, self.rope, 0, self.head_norms)
        self.ops.attention(plan, self.qkv, self.layout, 0, self.attended, window=50)
        self.ops.linear(self.attended, o, self.x, accumulate=True)
        self.ops.gated_linear(self.x, gate, up, self.gated, norm=self.norm)
        self.ops.rms_norm(self.x, self.norm, self.x)

    def plan(self, rows: list[int], starts: list[int]) -> Any:
        ends = [start + count for start, count in zip(starts, rows, strict=True)]
        tables = np.split(np.arange(sum(ends), dtype=np.int32)[::-1], np.cumsum(ends)[:-1])
        return self.ops.plan(spans(rows, starts, [np.ascontiguousarray(t) for t in tables]), self.kv)

    @property
    def bits(self) -> bytes:
        return b"".join(a.tobytes() for a in (self.x, self.gated, self.kv.k, self.kv.v))


STEPS: list[tuple[list[int], list[int]]] = [([3], [0]), ([1, 2], [70, 3]), ([1, 1, 1], [5, 130, 64])]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_does_what_its_walk_does_whatever_the_spans(threads: int) -> None:
    twin, native = Walked(TWIN, 3), Walked(NativeOps(threads), 3)
    before = native.bits
    program = native.ops.program(native.walk, native.plan(*STEPS[0]))
    assert native.bits == before, "noting the calls computes nothing"
    for step in STEPS:
        plan = twin.plan(*step)
        twin.ops.program(twin.walk, plan).run(plan)
        program.run(native.plan(*step))
        assert native.bits == twin.bits


def test_a_program_refuses_what_it_was_not_made_for() -> None:
    walked = Walked(ONE, 3, positions=100)
    program = walked.ops.program(walked.walk, walked.plan([3], [0]))
    before = walked.bits
    with pytest.raises(ValueError, match="another program"):
        program.run(walked.plan([4], [0]))
    with pytest.raises(ValueError, match="beyond the rope table"):
        program.run(walked.plan([3], [98]))
    other = KvPool(walked.kv.k.copy(), walked.kv.v.copy(), "f16")
    with pytest.raises(ValueError, match="another pool"):
        program.run(ONE.plan(spans([3], [0], [np.arange(3, dtype=np.int32)]), other))
    assert walked.bits == before


def test_a_program_outlives_plans_for_another_pool() -> None:
    walked, twin = Walked(ONE, 3), Walked(TWIN, 3)
    plan = walked.plan([3], [0])
    program = ONE.program(walked.walk, plan)
    ONE.plan(
        spans([3], [0], [np.arange(3, dtype=np.int32)]), KvPool(walked.kv.k.copy(), walked.kv.v.copy(), "f16")
    )
    program.run(walked.plan([3], [0]))
    twin.walk(twin.plan([3], [0]))
    assert walked.bits == twin.bits


def test_the_ops_keep_no_pool_alive() -> None:
    k, v = np.zeros((2, 1, 4, 1, 2, 16), np.float16)
    pool = KvPool(k, v, "f16")
    ONE.plan(spans([3], [0], [np.arange(3, dtype=np.int32)]), pool)
    pages = weakref.ref(k)
    del pool, k
    gc.collect()
    assert pages() is None


def test_two_threads_may_share_the_ops() -> None:
    rng = np.random.default_rng(6)
    packed = TWO.pack([weight(rng, "q8_0", 256, 256)])
    xs = [floats(rng, 300, 256) for _ in range(2)]

    def products(x: NDArray[np.float32], times: int) -> set[bytes]:
        out, found = np.empty((300, 256), np.float32), set()
        for _ in range(times):
            TWO.linear(x, packed, out)
            found.add(out.tobytes())
        return found

    alone = [products(x, 1) for x in xs]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(products, xs, [300, 300])) == alone


def test_what_another_thread_asks_meanwhile_is_done_not_noted() -> None:
    walked, rng = Walked(ONE, 3), np.random.default_rng(7)
    raw, x = weight(rng, "q4_1", 20, 64), floats(rng, 2, 64)
    packed = ONE.pack([raw])
    expected, got = np.empty((2, 20), np.float32), np.zeros((2, 20), np.float32)
    TWIN.linear(x, TWIN.pack([raw]), expected)

    def walk(plan: Any) -> None:
        with ThreadPoolExecutor(1) as other:
            other.submit(ONE.linear, x, packed, got).result()
        walked.walk(plan)

    program = ONE.program(walk, walked.plan([3], [0]))
    assert same(got, expected)
    got.fill(0)
    program.run(walked.plan([3], [0]))
    assert not got.any()


def test_a_walk_that_fails_leaves_the_ops_usable() -> None:
    walked, twin = Walked(ONE, 3), Walked(TWIN, 3)
    plan = walked.plan([3], [0])

    def broken(_plan: Any) -> None:
        raise ArithmeticError("in the middle")

    with pytest.raises(ArithmeticError):
        ONE.program(broken, plan)
    walked.walk(plan)
    twin.walk(twin.plan([3], [0]))
    assert walked.bits == twin.bits


def test_a_program_keeps_what_it_works_on() -> None:
    """Only the program still knows the weights, the norms and the tables of this walk."""
    twin, walked = Walked(TWIN, 3), Walked(ONE, 3)
    plan, x, pages = walked.plan([3], [0]), walked.x, walked.kv
    program = ONE.program(walked.walk, plan)
    del walked
    gc.collect()
    np.full(2**20, np.nan)  # whatever was freed is somebody else's now
    twin.walk(twin.plan([3], [0]))
    program.run(plan)
    assert same(x, twin.x)
    assert same(pages.k, twin.kv.k)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    format=st.sampled_from(FORMATS),
    blocks=st.integers(1, 4),
    odd=st.integers(0, 31),
    tokens=st.lists(st.integers(0, 6), max_size=5),
    scale=st.sampled_from([1.0, 24.0, 0.3]),
)
def test_embedded_rows_are_those_of_the_twin(
    seed: int, format: TensorFormat, blocks: int, odd: int, tokens: list[int], scale: float
) -> None:
    cols = 32 * blocks + (0 if format in BLOCK_BYTES else odd)
    table = weight(np.random.default_rng(seed), format, 7, cols)
    wanted = np.array(tokens, np.int32)
    expected = np.empty((len(tokens), cols), np.float32)
    got = np.full((len(tokens), cols + 3), np.nan, np.float32)[:, :cols]
    TWIN.embed(table, wanted, expected, scale=scale)
    ONE.embed(table, wanted, got, scale=scale)
    assert same(got, expected)


@pytest.mark.parametrize("ops", [ONE, TWIN])
@pytest.mark.parametrize("token", [-1, 7])
def test_a_token_outside_the_table_is_refused(ops: Any, token: int) -> None:
    table = weight(np.random.default_rng(0), "q8_0", 7, 32)
    with pytest.raises(ValueError, match="outside the vocabulary of 7"):
        ops.embed(table, np.array([3, token], np.int32), np.empty((2, 32), np.float32))


@pytest.mark.parametrize("ops", [ONE, TWIN])
def test_rows_that_end_within_a_block_are_refused(ops: Any) -> None:
    table = weight(np.random.default_rng(0), "q8_0", 7, 32)
    with pytest.raises(ValueError, match=r"shape"):
        ops.embed(table, np.array([3], np.int32), np.empty((1, 48), np.float32))
