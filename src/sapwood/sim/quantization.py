"""What a config says of quantized weights: in which format they are stored, and which are left as they were."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.decoder import Weight
from sapwood.sim.decoder_config import DecoderConfig
from sapwood.sim.packing import EVERY_MATRIX, PACKINGS, Packing, WeightsName

_TWO_BYTES = PACKINGS["bf16"]
_KEPT = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
"""Under one of these names lie the modules that keep two bytes a number."""
_EXPRESSION = "re:"
_MOST_BITS = 64


@dataclass(frozen=True, slots=True)
class Quantization:
    """Attributes:
    packing: of the matrices that are converted: those of the blocks but for routers, and experts.
    kept: modules that are not: names, parts of names, with `*`, or regular expressions behind `re:`.
    tables: whether the embedding is converted too.
    output: whether the output layer is.
    """

    packing: Packing
    kept: tuple[str, ...] = ()
    tables: bool = False
    output: bool = False

    def bytes_of(self, weight: Weight) -> float:
        packing = self.packing if self._converts(weight) else _TWO_BYTES
        return weight.copies * packing.bytes_of(weight.rows, weight.columns)

    def _converts(self, weight: Weight) -> bool:
        wanted = {
            "embedding": self.tables,
            "output": self.output,
            "linear": True,
            "experts": True,
            "router": self.packing.bits > 16,
            "vector": self.packing.bits > 16,
        }[weight.part]
        return wanted and not any(_names(pattern, weight.module) for pattern in self.kept)


def quantization_named(name: WeightsName, config: DecoderConfig) -> Quantization:
    """As if the model had been converted to that format; what its own quantization keeps is kept."""
    whole = name in EVERY_MATRIX
    packed = config.says("quantization_config")
    kept = () if whole or not isinstance(packed, Mapping) else _kept(packed, config.name)
    return Quantization(PACKINGS[name], kept, tables=whole, output=whole)


def quantization_of(config: DecoderConfig) -> Quantization | None:
    """As its `quantization_config` says; None for one whose size is not known. Two bytes a number without one."""
    packed = config.says("quantization_config")
    if packed is None:
        return Quantization(_TWO_BYTES)
    if not isinstance(packed, Mapping) or (packing := _packing(packed, config.name)) is None:
        return None
    kept = _kept(packed, config.name)
    # Targets of compressed-tensors are all linear layers, the output layer too unless it is among the ignored.
    return Quantization(packing, kept, output=bool(packed.get("config_groups") or packed.get("lm_head")))


@contextmanager
def _of_known_form(name: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, re.error) as error:
        raise UsageError(f"the quantization_config of {name} is of no known form: {error!r}") from None


def _kept(packed: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Expressions among them are such."""
    with _of_known_form(name):
        kept = tuple(pattern for key in _KEPT for pattern in _patterns(packed.get(key)))
        for pattern in kept:
            if pattern.startswith(_EXPRESSION):
                re.compile(pattern.removeprefix(_EXPRESSION))
    return kept


def _patterns(told: Any) -> list[str]:
    """One alone need not be in a list."""
    patterns = [told] if isinstance(told, str) else told or []
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise ValueError(f"names of modules were expected, not {told!r}")
    return patterns


def _packing(packed: Mapping[str, Any], name: str) -> Packing | None:
    """None for a method that is not known here."""
    method = str(packed.get("quant_method", "")).replace("_", "-").lower()
    with _of_known_form(name):
        if groups := packed.get("config_groups"):
            return _compressed(groups)
        if method in ("fp8", "fbgemm-fp8"):
            return _fp8(packed)
        if method in ("awq", "gptq", "awq-marlin", "gptq-marlin"):
            return _grouped(method, packed)
        if method in ("bitsandbytes", "bnb"):
            return _bitsandbytes(packed)
        if method == "mxfp4":
            return PACKINGS["mxfp4"]
        if method == "modelopt":
            return {"FP8": PACKINGS["fp8"], "NVFP4": PACKINGS["nvfp4"]}.get(str(packed.get("quant_algo")))
    return None


def _size(value: Any, most: int | None = None) -> int:
    """Raises ValueError."""
    if type(value) is not int or value < 1 or (most is not None and value > most):
        raise ValueError(f"{value!r} is no size")
    return value


def _group(value: Any) -> int | None:
    """None for -1, and where nothing is said: one group a row."""
    return None if value is None or value == -1 else _size(value)


def _fp8(packed: Mapping[str, Any]) -> Packing:
    """A scale for each block of the size told (DeepSeek, Qwen), or one for each row."""
    if block := packed.get("weight_block_size"):
        rows, columns = block
        return Packing("fp8", 8, 32, _size(columns), _size(rows))
    return PACKINGS["fp8"]


def _grouped(method: str, packed: Mapping[str, Any]) -> Packing:
    """A float16 scale, and a zero point of as many bits as a number, for so many inputs of each output."""
    bits = _size(packed.get("bits", packed.get("w_bit", 4)), _MOST_BITS)
    return Packing(f"{method} {bits} bit", bits, 16 + bits, _group(packed.get("group_size", 128)))


def _bitsandbytes(packed: Mapping[str, Any]) -> Packing:
    """8 bits with a float32 scale a row, or 4 with one for 64 numbers, which may be quantized to 8 bits itself."""
    if not packed.get("load_in_4bit"):
        return Packing("bitsandbytes 8 bit", 8, 32)
    scale = 8 + 32 / 256 if packed.get("bnb_4bit_use_double_quant") else 32
    return Packing("bitsandbytes 4 bit", 4, scale, 64)


def _compressed(groups: Mapping[str, Any]) -> Packing:
    """Of the first group: models of several formats at once are counted as of the first one."""
    [weights, *_] = [group["weights"] for group in groups.values()]
    bits, is_float = _size(weights["num_bits"], _MOST_BITS), weights.get("type") == "float"
    strategy = weights.get("strategy")
    name = f"{'fp' if is_float else 'int'}{bits}"
    if strategy == "block":
        rows, columns = weights["block_structure"]
        return Packing(name, bits, 32, _size(columns), _size(rows))
    if strategy == "tensor":
        return Packing(name, bits, 32, None, None)
    zero = 0 if is_float or weights.get("symmetric", True) else bits
    scale = 8 if is_float and bits == 4 else 16
    return Packing(name, bits, scale + zero, _group(weights.get("group_size")))


def _names(pattern: str, module: str) -> bool:
    """Whether a module, or one that it is in, is meant. Layers of pictures are not modules of the decoder."""
    if pattern.startswith(_EXPRESSION):
        expression = pattern.removeprefix(_EXPRESSION)
        return any(
            re.match(expression, f"{stem}{module}") for stem in ("", "model.", "language_model.model.")
        )
    if "vis" in pattern:
        return False
    tail = pattern[pattern.find("layers.") :] if "layers." in pattern else pattern.removeprefix("model.")
    if "*" in tail:
        return fnmatch.fnmatchcase(f".{module}.", f"*.{tail}.*")
    return f".{tail}." in f".{module}."
