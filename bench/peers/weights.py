"""The default model's weights in the formats that peers read: other GGUF types, and a Hugging Face folder in float32.

All are made from what the one file says once dequantised, so that every server computes the same function.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..document import tell
from ..errors import BenchError

GgufType = Literal["F16", "Q8_0"]
_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


@dataclass(frozen=True, slots=True)
class Weights:
    """Copies of `source` under `folder`, each made when first asked for and kept."""

    source: Path
    folder: Path

    @property
    def kind(self) -> str:
        """The source's own format, as its name says."""
        return self.source.stem.rpartition(".")[2]

    def gguf(self, kind: GgufType | None) -> Path:
        """The file with all matrices of one type; None is the source itself. Raises BenchError."""
        if kind is None:
            return self.source
        target = self.folder / f"{self.source.stem.rpartition('.')[0] or self.source.stem}.{kind}.gguf"
        return self._made(target, lambda path: write_gguf(self.source, path, kind))

    def hf(self) -> Path:
        """A folder with config.json, model.safetensors (float32) and tokenizer.json. Raises BenchError."""
        return self._made(self.folder / f"{self.source.stem}.hf", lambda path: write_hf(self.source, path))

    def _made(self, target: Path, make: Callable[[Path], None]) -> Path:
        if target.exists():
            return target
        tell(f"making {target.name} from {self.source.name}")
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(unfinished)
        return unfinished.rename(target)


def write_gguf(source: Path, target: Path, kind: GgufType) -> None:
    """The same facts and vectors; matrices dequantised and stored as `kind`."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
    from gguf.quants import quantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(int(LlamaFileType.MOSTLY_F16 if kind == "F16" else LlamaFileType.MOSTLY_Q8_0))
    wanted = GGMLQuantizationType[kind]
    for name, values in _tensors(reader):
        if values.ndim == 1:
            writer.add_tensor(name, values)
        elif kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hf(source: Path, target: Path) -> None:
    """Raises BenchError for an architecture other than llama's: its rows would lie in another order."""
    from gguf import GGUFReader

    from sapwood.chat.gguf_vocab import read_gguf_vocab

    reader = GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama":
        raise BenchError(
            f"{source.name} is of the family {facts['general.architecture']}; llama was expected"
        )
    config = _config(facts, tied="output.weight" not in {tensor.name for tensor in reader.tensors})
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    target.mkdir()
    tensors = {_hf_name(name): _unpermuted(name, values, heads) for name, values in _tensors(reader)}
    write_safetensors(target / "model.safetensors", tensors)
    vocab = read_gguf_vocab(facts)
    (target / "tokenizer.json").write_text(json.dumps(vocab.description, ensure_ascii=False))
    (target / "config.json").write_text(json.dumps(config, indent=1))
    tokens = facts["tokenizer.ggml.tokens"]
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": facts["tokenizer.chat_template"],
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(told, indent=1))


def write_safetensors(target: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    """Eight bytes of length, a JSON header, then the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with target.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, np.float32).tobytes())


def _tensors(reader: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    from gguf.quants import dequantize

    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        yield tensor.name, dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)


def _config(facts: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts.get("llama.attention.head_count_kv", heads),
        "head_dim": facts["llama.embedding_length"] // heads,
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }


def _hf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{_NAMES[part]}.weight"


def _unpermuted(name: str, values: NDArray[np.float32], heads: dict[str, int]) -> NDArray[np.float32]:
    """GGUF keeps the two halves that rope turns together side by side in each head of Q and K."""
    count = next((count for part, count in heads.items() if f".{part}." in name), None)
    if count is None:
        return values
    rows, cols = values.shape
    return values.reshape(count, rows // count // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)
