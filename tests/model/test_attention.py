"""Attention and the store before it: the native kernels against their twin, over every way that a step can be cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.scene import Scene, Seq, same, spans
from sapwood.model.kv import KvPool
from sapwood.model.ops import HeadLayout
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps

ONE, TWO, TWIN = NativeOps(1), NativeOps(2), ReferenceOps()
APART = NativeOps(2, trunks=False)
DTYPES = ["f16", "bf16", "f32", "q8"]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    layout=st.sampled_from(
        [HeadLayout(3, 1, 16), HeadLayout(4, 2, 8), HeadLayout(2, 2, 20), HeadLayout(6, 2, 64)]
    ),
    page_size=st.sampled_from([1, 4, 16]),
    dtype=st.sampled_from(DTYPES),
    seqs=st.lists(st.builds(Seq, st.integers(0, 140), st.integers(1, 9)), min_size=1, max_size=3),
    window=st.sampled_from([None, 1, 5, 70]),
    norms=st.booleans(),
    scale=st.sampled_from([None, 0.1, 1.0]),
)
def test_attention_equals_its_twin(
    seed: int,
    layout: HeadLayout,
    page_size: int,
    dtype: str,
    seqs: list[Seq],
    window: int | None,
    norms: bool,
    scale: float | None,
) -> None:
    scene = Scene(seed, layout, page_size, dtype, seqs)
    expected, pages = scene.run(TWIN, window=window, norms=norms, scale=scale)
    for ops in (ONE, TWO):
        got, stored = scene.run(ops, window=window, norms=norms, scale=scale)
        assert same(stored.k, pages.k)
        assert same(stored.v, pages.v)
        assert same(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [32, 64, 80, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_one_query_and_many_equal_their_twin_in_every_shape(head_dim: int, group: int, dtype: str) -> None:
    scene = Scene(head_dim + group, HeadLayout(group, 1, head_dim), 1, dtype, [Seq(70, 1), Seq(3, 2)])
    assert same(scene.run(TWO)[0], scene.run(TWIN)[0])


@pytest.mark.parametrize("window", [None, 100])
def test_long_blocks_equal_their_twin(window: int | None) -> None:
    scene = Scene(7, HeadLayout(2, 1, 16), 1, "f16", [Seq(40, 90), Seq(130, 1)])
    assert same(scene.run(TWO, window=window)[0], scene.run(TWIN, window=window)[0])


TREES = [
    [Seq(130, 1), Seq(130, 1, 0, 130), Seq(131, 1, 0, 130)],
    [Seq(200, 1), Seq(190, 2, 0, 190), Seq(100, 3, 0, 64), Seq(70, 1)],
    [Seq(128, 1), Seq(192, 1, 0, 128), Seq(192, 4, 1, 192), Seq(300, 1, 1, 100), Seq(64, 1, 0, 64)],
    [Seq(150, 60), Seq(150, 2, 0, 150), Seq(149, 1, 0, 149)],
]
"""Siblings; half-shared tables; a tree of three levels with one that ends on a tile; a long prefill beside the rest."""


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("window", [None, 65, 90])
@pytest.mark.parametrize("tree", TREES)
def test_a_trunk_gives_the_bits_of_the_plain_path(
    tree: list[Seq], window: int | None, page_size: int
) -> None:
    for layout in (HeadLayout(3, 1, 64), HeadLayout(8, 2, 32), HeadLayout(2, 2, 20)):
        scene = Scene(page_size, layout, page_size, "f16", tree)
        plain, _ = scene.run(APART, window=window)
        for ops in (ONE, TWO):
            assert same(scene.run(ops, window=window)[0], plain)


@pytest.mark.parametrize("tree", TREES)
def test_a_trunk_equals_the_twin(tree: list[Seq]) -> None:
    scene = Scene(1, HeadLayout(2, 1, 16), 1, "f16", tree)
    expected, _ = scene.run(TWIN)
    assert same(scene.run(TWO)[0], expected)
    assert same(scene.run(APART)[0], expected)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), min_size=2, max_size=9),
    shares=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 400)), min_size=9, max_size=9),
    page_size=st.sampled_from([1, 4, 16, 64, 128]),
    window=st.sampled_from([None, 30, 200]),
    dtype=st.sampled_from(DTYPES),
)
def test_trees_of_any_shape_give_the_bits_of_the_plain_path(
    seed: int, lengths: list[tuple[int, int]], shares: list[tuple[int, int]], page_size: int,
    window: int | None, dtype: str,
) -> None:  # fmt: skip
    seqs = [
        Seq(start, rows, like % i if i else None, shared)
        for i, ((start, rows), (like, shared)) in enumerate(zip(lengths, shares, strict=False))
    ]
    scene = Scene(seed, HeadLayout(3, 1, 16), page_size, dtype, seqs)
    assert same(scene.run(TWO, window=window)[0], scene.run(APART, window=window)[0])


def test_rows_of_int8_hold_their_largest_at_127() -> None:
    layout = HeadLayout(1, 1, 16)
    scene = Scene(2, layout, 1, "q8", [Seq(0, 4)])
    values = scene.qkv[:, 32:]
    values[0], values[1], values[2], values[3] = 0, np.arange(16) - 5, 1e-44, np.inf
    for ops in (TWO, TWIN):
        plan: Any = ops.plan(spans([4], [0], scene.tables), scene.kv)
        ops.rope_and_store(plan, scene.qkv.copy(), layout, scene.rope, 0)
        rows = scene.kv.v[0, scene.tables[0], 0, 0]
        quants, scales = rows[:, :16].view(np.int8), np.ascontiguousarray(rows[:, 16:]).view(np.float32)[:, 0]
        assert not quants[[0, 2, 3]].any()  # the scale of what is next to nothing would be zero
        assert scales[[0, 2]].tolist() == [0, 0]
        assert scales[1] == np.float32(10) / np.float32(127)
        assert quants[1].tolist() == np.rint((np.arange(16) - 5) / scales[1]).tolist()
        assert not np.isfinite(scales[3])


def test_sequences_that_agree_again_after_they_parted_are_no_trunk_there() -> None:
    """Equal pages behind different ones: never of one tree, and read right all the same."""
    scene = Scene(3, HeadLayout(3, 1, 16), 1, "f16", [Seq(200, 1), Seq(200, 1)])
    scene.tables[1][64:128] = scene.tables[0][64:128]
    expected, _ = scene.run(TWIN)
    assert same(scene.run(TWO)[0], expected)


@pytest.mark.parametrize("window", [None, 33, 100])
@pytest.mark.parametrize("chunks", [[200], [1] * 200, [7] * 28 + [4], [64, 64, 64, 8], [100, 3, 97]])
def test_attention_does_not_depend_on_where_chunks_were_cut(chunks: list[int], window: int | None) -> None:
    layout = HeadLayout(6, 2, 32)
    scene = Scene(5, layout, 1, "f16", [Seq(0, 200)])
    whole, _ = scene.run(TWO, window=window)
    kv = KvPool(np.zeros_like(scene.kv.k), np.zeros_like(scene.kv.v), "f16")
    start = 0
    for rows in chunks:
        qkv = scene.qkv[start : start + rows].copy()
        plan = TWO.plan(spans([rows], [start], [scene.tables[0][: start + rows]]), kv)
        TWO.rope_and_store(plan, qkv, layout, scene.rope, 0)
        out = np.empty((rows, layout.heads * layout.head_dim), np.float32)
        TWO.attention(plan, qkv, layout, 0, out, window=window)
        assert same(out, whole[start : start + rows])
        start += rows


def test_many_rows_far_into_a_context_take_bounded_room() -> None:
    """Beyond 32 MiB of partials a span is computed in blocks: the bits of its rows as spans of one query each."""
    layout, length = HeadLayout(16, 16, 8), 29_500
    pages = np.arange(length, dtype=np.int32)
    rng = np.random.default_rng(11)
    k, v = rng.standard_normal((2, 1, length, 1, 16, 8), np.float32)
    kv = KvPool(k, v, "f32")
    qkv = rng.standard_normal((64, layout.qkv_width), np.float32)
    ops = NativeOps(2)

    def attended(rows: list[int], starts: list[int], qkv: NDArray[np.float32]) -> NDArray[np.float32]:
        out = np.empty((len(qkv), 128), np.float32)
        tables = [pages[: start + count] for start, count in zip(starts, rows, strict=True)]
        ops.attention(ops.plan(spans(rows, starts, tables), kv), qkv, layout, 0, out)
        return out

    start, some = length - 64, [0, 1, 30, 63]
    whole = attended([64], [start], qkv)
    assert ops.scratch_bytes < 2**21
    apart = attended([1] * len(some), [start + i for i in some], np.ascontiguousarray(qkv[some]))
    assert same(whole[some], apart)
    assert same(whole[48:], attended([16], [start + 48], np.ascontiguousarray(qkv[48:])))
    assert 2**23 < ops.scratch_bytes < 2**25 + 2**21


def test_a_page_table_that_does_not_fit_is_refused() -> None:
    scene = Scene(0, HeadLayout(2, 1, 8), 4, "f16", [Seq(0, 5)])
    for ops in (ONE, TWIN):
        with pytest.raises(ValueError, match="cover"):
            ops.plan(spans([5], [0], [np.array([0], np.int32)]), scene.kv)
        with pytest.raises(ValueError, match="outside"):
            ops.plan(spans([5], [0], [np.array([0, 99], np.int32)]), scene.kv)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("chunks", [[16], [1] * 16, [5, 11]])
def test_a_later_value_that_is_infinite_touches_nobody_before_it(
    window: int | None, chunks: list[int]
) -> None:
    """Token 5's value overflows float16: rows that do not see it are as if it were not there."""
    layout = HeadLayout(3, 1, 16)
    scene = Scene(9, layout, 1, "f16", [Seq(0, 16)])
    clean = scene.qkv.copy()
    scene.qkv[5, 4 * 16 :] = 1e5
    kv = KvPool(np.zeros_like(scene.kv.k), np.zeros_like(scene.kv.v), "f16")
    rows = []
    for start, count in zip(np.cumsum([0, *chunks[:-1]]).tolist(), chunks, strict=True):
        qkv = scene.qkv[start : start + count].copy()
        plan = TWO.plan(spans([count], [start], [scene.tables[0][: start + count]]), kv)
        TWO.rope_and_store(plan, qkv, layout, scene.rope, 0)
        rows.append(np.empty((count, 48), np.float32))
        TWO.attention(plan, qkv, layout, 0, rows[-1], window=window)
    got = np.concatenate(rows)
    scene.qkv = clean
    expected, _ = scene.run(TWIN, window=window)
    unseen = [i for i in range(16) if i < 5 or (window is not None and i >= 5 + window)]
    assert same(got[unseen], expected[unseen])
    assert not np.isfinite(got[5]).all()
