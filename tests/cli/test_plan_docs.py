"""The tables of docs/plan.md are what the code knows."""

from __future__ import annotations

import re
from pathlib import Path

from sapwood.sim.hardware import KNOWN_HARDWARE
from sapwood.sim.known_models import KNOWN_MODELS, shape_named

DOCS = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")


def rows_below(head: str) -> list[str]:
    lines = DOCS.split(f"| `{head}` |")[1].splitlines()[2:]
    return lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]


def test_models() -> None:
    expected = []
    for name in KNOWN_MODELS:
        shape = shape_named(name)
        weights, kv = shape.bytes_of_weights / 1e9, shape.kv_bytes_per_token / 1e3
        billions = shape.parameters / 1e9
        expected.append(
            f"| `{name}` | {billions:.2f}B | {weights:.3g} GB | {kv:.3g} kB | {shape.context:,} |"
        )
    assert rows_below("--model-shape") == expected


def test_hardware() -> None:
    assert rows_below("--hardware") == [
        f"| `{each.name}` | {each.peak_flops / 1e12:g} | {each.bandwidth / 1e12:g} | {each.memory_bytes / 1e9:g} |"
        for each in KNOWN_HARDWARE.values()
    ]


def test_the_device_that_is_said_to_hold_gpt_oss_does() -> None:
    room = KNOWN_HARDWARE["h100"].usable_bytes - shape_named("gpt-oss-120b").bytes_of_weights
    [said] = re.findall(r"fits on one H100 with ([\d.]+) GB", DOCS)
    assert f"{room / 1e9:.2g}" == said
