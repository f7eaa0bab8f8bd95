"""Steps of an engine, by hand; and measured runs of vLLM, to say how near data sheets come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sapwood.sim.cost import StepShape
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.profile import LayerProfile, ProfileCost
from sapwood.sim.roofline import RooflineCost
from sim.configs import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_8B, shape_of
from sim.vllm_runs import DATA

COST = RooflineCost(shape_of(LLAMA_3_8B, "llama-3-8b"), hardware_named("h100"))
TABLE = 128256 * 4096
BODY = 8_030_261_248 - 2 * TABLE
REACHED = 494.5e12


def step(*works: tuple[int, int], draws: int | None = None) -> StepShape:
    starts, counts = zip(*works, strict=True)
    return StepShape(
        np.array(starts, np.int64), np.array(counts, np.int64), len(works) if draws is None else draws
    )


def test_a_prompt_is_multiplied_with_the_body_and_its_last_token_with_the_output_layer() -> None:
    flops = 2 * BODY * 1600 + 2 * TABLE + 4 * 32 * 4096 * 1600**2 / 2
    assert COST.prefill_seconds(1600, 0) == pytest.approx(flops / REACHED, rel=1e-12)
    assert COST.step_seconds(step((0, 1600))) == pytest.approx(flops / REACHED, rel=1e-12)
    chunk = step((0, 1600), draws=0)
    assert COST.step_seconds(chunk) == pytest.approx((flops - 2 * TABLE) / REACHED, rel=1e-12)


def test_what_is_cached_is_not_multiplied() -> None:
    flops = 2 * BODY * 112 + 2 * TABLE + 2 * 32 * 4096 * (1600**2 - 1488**2)
    assert COST.prefill_seconds(1600, 1488) == pytest.approx(flops / REACHED, rel=1e-12)


def test_decoding_reads_the_weights_once_and_the_kv_of_each_at_the_bandwidth_that_is_reached() -> None:
    read = 2 * (BODY + TABLE) + 8 * 1001 * 131_072
    assert COST.step_seconds(step(*[(1000, 1)] * 8)) == pytest.approx(read / (0.8 * 3.35e12), rel=1e-12)


def test_weights_and_kv_of_fewer_bytes_are_read_sooner() -> None:
    light = RooflineCost(shape_of(LLAMA_3_8B, weights="fp8", kv="fp8"), COST.hardware)
    read = BODY + 2 * TABLE + 1001 * 65_536
    assert light.step_seconds(step((1000, 1))) == pytest.approx(read / (0.8 * 3.35e12), rel=1e-3)
    assert light.prefill_seconds(1600, 0) == COST.prefill_seconds(1600, 0)


def test_windows_look_at_their_last_tokens() -> None:
    """gpt-oss: 18 of 36 layers look at 128 tokens; pairs of a window are those of a triangle and of a band."""
    shape = shape_of(GPT_OSS_120B)
    cost, everywhere = (
        RooflineCost(shape, COST.hardware),
        RooflineCost(replace(shape, window=None), COST.hardware),
    )
    pairs, band = 10_000**2 / 2, 128**2 / 2 + 128 * (10_000 - 128)
    saved = 4 * 64 * 64 * 18 * (pairs - band) / REACHED
    assert everywhere.prefill_seconds(10_000, 0) - cost.prefill_seconds(10_000, 0) == pytest.approx(saved)
    both = [each.step_seconds(step((0, 10_000))) for each in (everywhere, cost)]
    assert both[0] - both[1] == pytest.approx(saved)
    kv = [each.step_seconds(step((9_999, 1))) for each in (everywhere, cost)]
    assert kv[0] - kv[1] == pytest.approx((10_000 - 128) * 73_728 / 2 / (0.8 * 3.35e12))
    assert cost.prefill_seconds(100, 0) == everywhere.prefill_seconds(100, 0)


def test_latent_attention_is_absorbed() -> None:
    shape = shape_of(DEEPSEEK_V3)
    cost = RooflineCost(shape, hardware_named("h200"))
    pairs = (1000**2 - 999**2) / 2
    flops = 2 * shape.body + 2 * 129280 * 7168 + 61 * 2 * 128 * (576 + 512) * pairs
    assert cost.prefill_seconds(1000, 999) == pytest.approx(flops / (989e12 / 2), rel=1e-12)


def test_its_name_says_what_was_modelled() -> None:
    assert COST.name == (
        "the roofline of llama-3-8b on h100 at 50% of its peak and 80% of its bandwidth, the output layer for tokens "
        "drawn alone"
    )


@pytest.mark.parametrize(("device", "hardware"), [("RTX4090", "rtx-4090"), ("RTXPRO6000", "rtx-pro-6000")])
def test_decoding_comes_nearer_to_measured_layers_than_at_all_of_the_bandwidth(
    device: str, hardware: str
) -> None:
    """The layers were measured under vLLM: 1 to 128 sequences of some hundred tokens."""
    measured = ProfileCost(LayerProfile.read(DATA / f"{device}_Llama-3.1-8B_tp1"), blocks=32)
    steps = [step(*[(600, 1)] * sequences) for sequences in (1, 8, 32, 64, 128)]
    known = hardware_named(hardware)
    errors = []
    for mbu in (1.0, known.mbu):
        cost = RooflineCost(shape_named("llama-3.1-8b"), replace(known, mbu=mbu))
        errors.append([cost.step_seconds(each) / measured.step_seconds(each) - 1 for each in steps])
    of_sheet, reached = (np.abs(each) for each in errors)
    assert reached.mean() < of_sheet.mean() / 2
    assert reached.max() < 0.16 < of_sheet.max()
