"""Bytes of matrices, by hand."""

from __future__ import annotations

from typing import get_args

import pytest

from sapwood.sim.packing import PACKINGS, Packing, WeightsName

MANY = 4096


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f32", 32.0),
        ("bf16", 16.0),
        ("fp8", 8 + 32 / MANY),
        ("int8", 8 + 16 / MANY),
        ("int4", 4 + 20 / 128),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
        ("q8", 8.5),
        ("q4", 5.0),
    ],
)
def test_bits_of_a_number_with_its_share_of_scales(name: WeightsName, bits: float) -> None:
    assert PACKINGS[name].bytes_of(MANY, MANY) == MANY * MANY * bits / 8


def test_each_format_has_a_packing() -> None:
    assert set(PACKINGS) == set(get_args(WeightsName))


def test_blocks_at_an_edge_are_whole() -> None:
    blocks = Packing("fp8", 8, 32, 128, 128)
    assert blocks.bytes_of(256, 256) == 256 * 256 + 4 * 4
    assert blocks.bytes_of(130, 257) == 130 * 257 + 2 * 3 * 4


def test_one_scale_may_be_for_all() -> None:
    assert Packing("fp8", 8, 32, None, None).bytes_of(10, 10) == 104
