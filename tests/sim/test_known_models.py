"""Parameters beside what the checkpoints of the makers hold (pictures left out)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.known_models import KNOWN_MODELS, shape_named
from sim.configs import GPT_OSS_120B, QWEN3_32B, SMOLLM2_135M, shape_of

PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "smollm2-1.7b": 1_711_376_384,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "mistral-7b": 7_248_023_552,
    "mistral-small-24b": 23_572_403_200,
    "phi-4": 14_659_507_200,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "deepseek-v3": 671_026_419_200,
}


def test_known_models_have_the_parameters_that_were_published() -> None:
    assert {name: shape_named(name).parameters for name in KNOWN_MODELS} == PUBLISHED


def test_known_models_are_what_their_configs_give() -> None:
    assert shape_named("gpt-oss-120b") == shape_of(GPT_OSS_120B, "gpt-oss-120b")
    assert shape_named("qwen3-32b") == shape_of(QWEN3_32B, "qwen3-32b")
    assert (shape_named("llama-3-8b").context, shape_named("llama-3.1-8b").context) == (8192, 131_072)
    assert all(shape_named(name).context for name in KNOWN_MODELS)


@pytest.mark.parametrize(
    ("name", "of_a_token"),
    [
        ("Llama-3-8B", 131_072),
        ("smollm2-135m", 23_040),
        ("qwen3-32b", 262_144),
        ("gpt-oss-120b", 73_728),
        ("deepseek-v3", 70_272),
    ],
)
def test_kv_of_a_token(name: str, of_a_token: int) -> None:
    assert shape_named(name).kv_bytes_per_token == of_a_token
    assert shape_named(name, kv="fp8").kv_bytes_per_token == of_a_token / 2


def test_a_file_and_its_folder_give_the_shape(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2_135M))
    shape = shape_named(str(folder))
    assert shape == shape_named(str(folder / "config.json"))
    assert (shape.name, shape.parameters) == ("mine", 134_515_008)
    assert shape_named(str(folder), "f32").bytes_of_weights == 4 * 134_515_008


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="no model's shape is known as 'lama'") as caught:
        shape_named("lama")
    assert "smollm2-135m" in str(caught.value)
