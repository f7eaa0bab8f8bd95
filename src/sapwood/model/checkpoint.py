"""A model on disk as the decoder wants it: spec, tensors by canonical name, and a fingerprint of both."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.errors import ModelError
from sapwood.model.facts import Facts
from sapwood.model.families import FAMILIES, Place
from sapwood.model.gguf_config import FREQUENCY_TENSORS, spec_from_gguf
from sapwood.model.gguf_convert import from_gguf, to_f32
from sapwood.model.gguf_file import read_gguf
from sapwood.model.hf_config import spec_from_config
from sapwood.model.safetensors_file import SafetensorsFile, read_safetensors
from sapwood.model.spec import Extent, ModelSpec
from sapwood.model.tensor import RawTensor, TensorFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sapwood.model.gguf_file import GgufFile

__all__ = ["Checkpoint", "RawTensor", "TensorFormat", "VocabSource", "load_checkpoint"]

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_OF_A_LAYER = re.compile(r"(?:blk|model\.layers)\.\d+\..*")
_DERIVED = ("rotary_emb.inv_freq", "attn_rot_embd.weight")
"""Ends of the names of tensors that only repeat what the config says of the rope."""


@dataclass(frozen=True, slots=True)
class VocabSource:
    """Where the tokenizer comes from, as plain data for `chat.Tokenizer`; exactly one of the two is set.

    Attributes:
        tokenizer_json: path of a `tokenizer.json`, for `Tokenizer.from_json(path, config)`.
        config: what its `tokenizer_config.json` says.
        gguf: the `tokenizer.*` facts of a GGUF file, for `Tokenizer.from_gguf(metadata)`.
    """

    tokenizer_json: Path | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    gguf: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A loaded model.

    Attributes:
        tensors: every name of `spec.extents()`, with those extents.
        fingerprint: sha256, hex, over spec and tensors; equal for equal weights in equal formats.
        name: what the file or folder is called.
        vocab: source of the tokenizer; None where the folder has none.
        chat_template: Jinja source, if the model carries one.
        notices: what the operator should know, such as converted tensors.
    """

    spec: ModelSpec
    tensors: Mapping[str, RawTensor]
    fingerprint: str
    name: str
    vocab: VocabSource | None
    chat_template: str | None
    notices: tuple[str, ...]


def load_checkpoint(path: Path) -> Checkpoint:
    """Loads a GGUF file, or a folder with `config.json` and safetensors (or with a single GGUF file).

    Weights are memory-mapped where their bytes need no change. Nothing is ever unpickled.
    Raises ModelError naming the file and the tensor or key that is missing, cut, corrupt or unsupported.
    """
    if path.is_dir():
        return _load_folder(path)
    if not path.exists():
        raise ModelError(f"there is no model at {path}", hint="give a GGUF file or a folder with config.json")
    if path.suffix in _PICKLES:
        raise _pickle_error(path)
    if path.suffix in (".safetensors", ".json"):
        raise ModelError(f"{path} is one file of a model", hint=f"give its folder: {path.parent}")
    return _load_gguf(path)


def _load_folder(folder: Path) -> Checkpoint:
    safetensors = sorted(folder.glob("*.safetensors"))
    if safetensors:
        return _load_safetensors(folder, safetensors)
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        return _load_gguf(ggufs[0])
    if ggufs:
        raise ModelError(f"{folder} holds {len(ggufs)} GGUF files", hint=f"name one, such as {ggufs[0]}")
    if any(found.suffix in _PICKLES for found in folder.iterdir()):
        raise _pickle_error(folder)
    raise ModelError(f"{folder} holds no *.safetensors and no *.gguf file", hint="is the download complete?")


def _pickle_error(path: Path) -> ModelError:
    return ModelError(
        f"{path} holds pickled weights ({', '.join(_PICKLES)}); reading them could run code",
        hint="use the model's safetensors or a GGUF file",
    )


def _load_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    spec = spec_from_gguf(file)
    tensors = dict(_gguf_tensors(file, spec))
    vocab = {key: value for key, value in file.facts.items() if key.startswith("tokenizer.")}
    template = vocab.get("tokenizer.chat_template")
    return Checkpoint(
        spec=spec,
        tensors=MappingProxyType(tensors),
        fingerprint=_fingerprint(spec, tensors),
        name=path.stem,
        vocab=VocabSource(gguf=MappingProxyType(vocab)) if "tokenizer.ggml.tokens" in vocab else None,
        chat_template=template if isinstance(template, str) else None,
        notices=_gguf_notices(file, spec, tensors),
    )


def _gguf_tensors(file: GgufFile, spec: ModelSpec) -> Iterator[tuple[str, RawTensor]]:
    family = FAMILIES[spec.family]
    extents = spec.extents()
    for name, place in family.places(spec, "gguf").items():
        stored = file.tensors.get(place.name)
        if stored is None:
            raise ModelError(f"{file.path} lacks the tensor {place.name!r}")
        _check_extent(file.path, place, Extent(stored.rows, stored.cols), extents[name])
        rows = slice(place.first, place.first + extents[name].rows)
        part = replace(stored, rows=extents[name].rows, data=stored.data[rows])
        tensor = from_gguf(part, name)
        yield name, _half_split(tensor, spec) if family.gguf_permuted else tensor


def _half_split(tensor: RawTensor, spec: ModelSpec) -> RawTensor:
    """Undoes the row order of GGUF's Llama files, where 2j pairs with 2j + 1: j will pair with j + dim / 2.

    Rows move whole, so this is lossless in every format.
    """
    part = tensor.name.rpartition(".")[2]
    if part not in ("q", "k", "q_bias", "k_bias"):
        return tensor
    heads = spec.heads if part.startswith("q") else spec.kv_heads
    half = spec.head_dim // 2
    data: NDArray[Any]
    if part.endswith("bias"):
        data = tensor.data.reshape(heads, half, 2).swapaxes(1, 2).reshape(1, -1)
    else:
        data = tensor.data.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(tensor.data.shape)
    return replace(tensor, data=np.ascontiguousarray(data))


def _gguf_notices(file: GgufFile, spec: ModelSpec, tensors: Mapping[str, RawTensor]) -> tuple[str, ...]:
    places = FAMILIES[spec.family].places(spec, "gguf")
    stored = {name: file.tensors[place.name].layout.name for name, place in places.items()}
    kinds = Counter(
        (stored[name], t.format) for name, t in tensors.items() if stored[name].lower() != t.format
    )
    notices = [f"{old} converted to {new} for {n} tensors" for (old, new), n in sorted(kinds.items())]
    used = {place.name for place in places.values()}.union(FREQUENCY_TENSORS)
    return (*notices, *_rope_notice(spec), *_unused_notice(file.path, set(file.tensors) - used))


def _load_safetensors(folder: Path, paths: list[Path]) -> Checkpoint:
    config = Facts(str(folder / "config.json"), _json(folder / "config.json"))
    generation_path = folder / "generation_config.json"
    generation = Facts(str(generation_path), _json(generation_path) if generation_path.exists() else {})
    spec = spec_from_config(config, generation)
    shards = _shards(folder, paths)
    tensors = dict(_safetensors_tensors(folder, spec, shards))
    tokenizer_config = _tokenizer_config(folder)
    return Checkpoint(
        spec=spec,
        tensors=MappingProxyType(tensors),
        fingerprint=_fingerprint(spec, tensors),
        name=folder.resolve().name,
        vocab=_folder_vocab(folder, tokenizer_config),
        chat_template=_folder_template(folder, tokenizer_config),
        notices=(*_rope_notice(spec), *_unused_notice(folder, _unused(spec, shards))),
    )


def _shards(folder: Path, paths: list[Path]) -> Mapping[str, SafetensorsFile]:
    """Each stored tensor's file: by the index where there is one, else by what the files say themselves."""
    index_path = folder / "model.safetensors.index.json"
    if not index_path.exists():
        own = [path for path in paths if path.name.startswith("model")] or paths
        files = [read_safetensors(path) for path in own]
        return {stored: file for file in files for stored in file.entries}
    weight_map = Facts(str(index_path), _json(index_path)).table("weight_map")
    names = {stored: weight_map.text(stored) for stored in weight_map.values}
    opened: dict[str, SafetensorsFile] = {}
    for stored, shard in names.items():
        if Path(shard).name != shard or "\0" in shard:
            raise ModelError(f"{index_path}: tensor {stored!r} points outside the folder, to {shard!r}")
        if shard not in opened:
            opened[shard] = read_safetensors(folder / shard)
    return {stored: opened[shard] for stored, shard in names.items()}


def _safetensors_tensors(
    folder: Path, spec: ModelSpec, shards: Mapping[str, SafetensorsFile]
) -> Iterator[tuple[str, RawTensor]]:
    family, extents = FAMILIES[spec.family], spec.extents()
    for name, place in family.places(spec, "hf").items():
        stored = place.name
        if stored not in shards or stored not in shards[stored].entries:
            where = shards[stored].path if stored in shards else folder
            raise ModelError(f"{where} lacks the tensor {stored!r}", hint="is the download complete?")
        whole = shards[stored].tensor(stored, name)
        _check_extent(shards[stored].path, place, Extent(whole.rows, whole.cols), extents[name])
        rows = slice(place.first, place.first + extents[name].rows)
        tensor = replace(whole, rows=extents[name].rows, data=whole.data[rows])
        yield name, _plus_one(tensor) if family.hf_norms_from_one and name.endswith("norm") else tensor


def _plus_one(norm: RawTensor) -> RawTensor:
    return replace(norm, format="f32", data=to_f32(norm) + np.float32(1))


def _unused(spec: ModelSpec, shards: Mapping[str, SafetensorsFile]) -> set[str]:
    used = {place.name for place in FAMILIES[spec.family].places(spec, "hf").values()}
    return set(shards) - used - ({"lm_head.weight"} if spec.tied else set())


def _unused_notice(path: Path, unused: set[str]) -> tuple[str, ...]:
    """Raises ModelError for a weight of a layer: without it the layer would compute something else."""
    names = sorted(name for name in unused if not name.endswith(_DERIVED))
    for name in names:
        if _OF_A_LAYER.fullmatch(name):
            raise ModelError(
                f"{path}: tensor {name!r} is not computed here; the model would answer wrongly without it",
                hint="is the config of this very model, and the model of a supported kind?",
            )
    return (f"{len(names)} tensors are not used, such as {names[0]!r}",) if names else ()


_FIXED_ROPES: Mapping[str, str] = MappingProxyType(
    {
        "ntk": "dynamic NTK rope is fixed at its stretch for {context} tokens: stored keys stay true",
        "longrope": "the rope's long factors are used from the first token on: stored keys stay true",
    }
)


def _rope_notice(spec: ModelSpec) -> tuple[str, ...]:
    said = _FIXED_ROPES.get(spec.rope.scaling)
    return () if said is None or spec.rope.factor <= 1 else (said.format(context=spec.max_context),)


def _check_extent(path: Path, place: Place, found: Extent, part: Extent) -> None:
    expected = Extent(place.of, part.cols)
    if found != expected:
        raise ModelError(
            f"{path}: tensor {place.name!r} is {found.rows} × {found.cols}; the model's config says "
            f"{expected.rows} × {expected.cols}"
        )


def _tokenizer_config(folder: Path) -> Mapping[str, object]:
    path = folder / "tokenizer_config.json"
    return _json(path) if path.exists() else {}


def _folder_vocab(folder: Path, config: Mapping[str, object]) -> VocabSource | None:
    path = folder / "tokenizer.json"
    return VocabSource(tokenizer_json=path, config=config) if path.exists() else None


def _folder_template(folder: Path, config: Mapping[str, object]) -> str | None:
    own_file = folder / "chat_template.jinja"
    if own_file.exists():
        return own_file.read_text(encoding="utf-8")
    named = config.get("chat_template")
    if isinstance(named, list):
        by_name = {entry.get("name"): entry.get("template") for entry in named if isinstance(entry, dict)}
        named = by_name.get("default")
    return named if isinstance(named, str) else None


def _json(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", hint="is the download complete?") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds {type(found).__name__}; an object was expected")
    return MappingProxyType(found)


def _fingerprint(spec: ModelSpec, tensors: Mapping[str, RawTensor]) -> str:
    digest = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.format} {tensor.rows} {tensor.cols}\n".encode())
        digest.update(np.ascontiguousarray(tensor.data).view(np.uint8).data)
    return digest.hexdigest()
