"""Steps on measured layers; and whole measured runs of vLLM, predicted from these layers and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sim import Setup, StepShape, simulate
from sapwood.sim.profile import LayerProfile, ProfileCost
from sim.vllm_runs import DATA, measured

BLOCKS_OF_16 = {"RTX4090": 2588, "RTXPRO6000": 35_000}
"""The first is vLLM's own count. Of the other none is told: 0.9 of 96 GB, less 16 GB of weights and 3 GB of work space,
is 512 thousand tokens of 128 KiB; 128 sequences never come to 300 thousand, so any number from there on is as good."""
SEQUENCES = {"RTX4090": 256, "RTXPRO6000": 128}


def cost_of(hardware: str) -> ProfileCost:
    return ProfileCost(LayerProfile.read(DATA / f"{hardware}_Llama-3.1-8B_tp1"), blocks=32)


@pytest.mark.parametrize("hardware", ["RTX4090", "RTXPRO6000"])
def test_measured_vllm_runs_are_predicted_within_15_percent(hardware: str) -> None:
    real = measured(hardware)
    setup = Setup(
        BLOCKS_OF_16[hardware] * 16,
        CacheConfig(page_size=16, prefix_index="blocks"),
        SchedulerConfig(2048, SEQUENCES[hardware], schedule_policy="fcfs", speculate="off"),
    )
    run = simulate(real.trace, setup, cost_of(hardware))
    assert run.ttft.mean() == pytest.approx(real.ttft, rel=0.15)
    assert run.tpot.mean() == pytest.approx(real.tpot, rel=0.15)
    assert (run.preemptions > 0) == (hardware == "RTX4090")


def shape(*works: tuple[int, int], draws: int = 0) -> StepShape:
    """Of (start, count) pairs."""
    starts, counts = np.array(works).T
    return StepShape(starts, counts, draws)


def test_a_measured_step_is_the_sum_of_its_layers() -> None:
    """4 tokens read from nothing are not in the table of attention, 16 are; all layers of 16 tokens are."""
    profile = LayerProfile.read(DATA / "RTX4090_Llama-3.1-8B_tp1")
    of_16 = {layer: float(table[1][table[0] == 16][0]) for layer, table in profile.dense.items()}
    once = of_16.pop("embedding") + of_16.pop("final_layernorm")
    block = sum(of_16.values()) + of_16["layernorm"]
    drawing = sum(float(table[1][table[0] == 1][0]) for table in profile.per_sequence.values())
    micro = once + 32 * (block + 9.5) + drawing
    assert cost_of("RTX4090").step_seconds(shape((0, 16), draws=1)) == pytest.approx(micro * 1e-6, rel=1e-3)


def test_more_of_anything_takes_longer() -> None:
    cost = cost_of("RTX4090")
    steps = [
        shape((100, 1), draws=1),
        shape((3000, 1), draws=1),
        shape((3000, 1), (3000, 1), draws=2),
        shape((3000, 1), (3000, 1), (0, 700), draws=2),
        shape((3000, 1), (3000, 1), (900, 700), draws=2),
        shape((3000, 1), (3000, 1), (900, 700), (0, 100), draws=2),
        shape((3000, 1), (3000, 1), (900, 700), (0, 4000), draws=2),
        shape(*[(3000, 1)] * 400, (900, 700), (0, 4000), draws=400),
    ]
    seconds = [cost.step_seconds(each) for each in steps]
    assert seconds == sorted(seconds)
    assert cost.prefill_seconds(1000, 0) > 2 * cost.prefill_seconds(1000, 900) > 0


def test_a_profile_that_is_not_there_or_no_profile_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"h100_attention\.csv is not there"):
        LayerProfile.read(tmp_path / "h100")
    (tmp_path / "h100_attention.csv").write_text("layer,time\nqkv,1\n")
    with pytest.raises(
        UsageError, match="prefill_chunk, kv_prefill, n_decode, kv_decode, time_us were expected"
    ):
        LayerProfile.read(tmp_path / "h100")


def test_a_damaged_profile_is_told(tmp_path: Path) -> None:
    columns = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    (tmp_path / "h100_attention.csv").write_text(f"{columns}\n1,2,3,x,5\n")
    with pytest.raises(UsageError, match=r"profile .*h100 cannot be read: invalid literal for int\(\) .*'x'"):
        LayerProfile.read(tmp_path / "h100")


SIZES = {"attention": "prefill_chunk,kv_prefill,n_decode,kv_decode", "dense": "layer,tokens"}
SIZES["per_sequence"] = "layer,sequences"


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [
        ("attention", "1,2,3,4,nan", "nan is neither a time nor a number"),
        ("attention", "1,2,3,4,-1e9", "-1e9 is neither"),
        ("attention", "-1,2,3,4,5", "-1 is neither"),
        ("attention", f"{10**400},2,3,4,5", "int too large"),
        ("attention", "", "no grid of chunks"),
        ("dense", "qkv,1,nan\nqkv,2,5", "nan is neither"),
        ("dense", "qkv,1,inf\nqkv,2,5", "inf is neither"),
        ("dense", "qkv,1,5\nqkv,2,-1e9", "-1e9 is neither"),
        ("dense", "qkv,-1,5\nqkv,2,5", "-1 is neither"),
        ("dense", "", "no layer was measured by its number of tokens"),
        ("per_sequence", "", "no layer was measured by its number of sequences"),
        ("dense", "qkv,1,2\nqkv,2,3\nact_fn,1,5", "act_fn was measured with one number of tokens alone"),
        (
            "per_sequence",
            "lm_head,1,5\nlm_head,1,6",
            "lm_head was measured with one number of sequences alone",
        ),
    ],
)
def test_what_was_not_measured_is_told(kind: str, rows: str, said: str, tmp_path: Path) -> None:
    for each in SIZES:
        name = f"RTX4090_Llama-3.1-8B_tp1_{each}.csv.gz"
        shutil.copyfile(DATA / name, tmp_path / f"h100_{each}.csv.gz")
    LayerProfile.read(tmp_path / "h100")
    (tmp_path / f"h100_{kind}.csv").write_text(f"{SIZES[kind]},time_us\n{rows}\n")
    with pytest.raises(UsageError, match=said):
        LayerProfile.read(tmp_path / "h100")
