"""The sampling that a model's makers recommend: from its generation_config.json, or from its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

from sapwood.errors import ModelError, RequestError
from sapwood.model.facts import Facts
from sapwood.types import SamplingDefaults, SamplingParams

KNOWN: Mapping[str, SamplingDefaults] = MappingProxyType(
    {"smollm2-135m": SamplingDefaults(temperature=0.2, top_p=0.9)}
)
"""By short name, for models whose file carries no such facts: the values of the model card."""


def recommended_sampling(name: str, path: Path) -> SamplingDefaults:
    """The defaults for the model called `name` that lies at `path`. Raises ModelError for a file that is wrong."""
    if name in KNOWN:
        return KNOWN[name]
    file = path / "generation_config.json"
    if not path.is_dir() or not file.is_file():
        return SamplingDefaults()
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{file} must hold an object")
    return _from_config(Facts(str(file), values))


def _from_config(config: Facts) -> SamplingDefaults:
    if not config.flag("do_sample", default=True):
        return SamplingDefaults(temperature=0.0)
    given = {
        field.name: config.number(field.name) for field in fields(SamplingDefaults) if config.has(field.name)
    }
    if "top_k" in given:
        given["top_k"] = config.integer("top_k")
    defaults = SamplingDefaults(**given)  # type: ignore[arg-type]  # top_k was just made an int
    try:
        SamplingParams(**{field.name: getattr(defaults, field.name) for field in fields(SamplingDefaults)})
    except RequestError as error:
        raise ModelError(f"{config.source}: {error.message}") from error
    return defaults
