"""What the bodies of SGLang, llama.cpp and Ollama have in common: sampler settings, and fields that are not served.

Every number is bounded under the name that its dialect gives it, so that an error names what the client wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sapwood.chat.body import Body, BodyT, Integer, Number, Text, one_or_list, read_body
from sapwood.chat.unsupported import Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import SamplingDefaults, SamplingParams

MAX_STOPS = 64
MAX_STOP_TOKENS = 4096
MOST_LISTED = 32
"""Names of unknown fields that are said back."""

Salt = Annotated[Text, Field(min_length=1, max_length=256)]


def _without_empty(value: Any) -> Any:
    """Clients of these servers send an empty stop string to say that there is none."""
    return [each for each in value if each != ""] if isinstance(value, list) else value


Stops = Annotated[
    list[Text],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_without_empty),
    BeforeValidator(one_or_list),
]

Penalty = Annotated[Number, Field(ge=0.01, le=100)]
"""Of repetition: 1 is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """What all calls say. `ignored` are the names of the fields that nothing reads."""

    stream: bool
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall(NativeCall):
    """A call with one model and one set of settings. `salt` separates its prefixes from those of others."""

    model: str | None
    params: SamplingParams
    salt: str


class Samplers(Body):
    """Settings that have one name everywhere. A `top_k` of 0 or below keeps all tokens."""

    temperature: Annotated[Number, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    seed: Integer | None = None
    stop: Stops | None = None


def sampler_settings(
    samplers: Samplers, defaults: SamplingDefaults, vocab_size: int, *, penalty: float | None
) -> dict[str, Any]:
    """Arguments of SamplingParams: what `samplers` says, and `defaults` for the rest. A seed below 0 is none."""
    seed = samplers.seed
    given = {
        "temperature": samplers.temperature,
        "top_k": None if samplers.top_k is None else min(max(samplers.top_k, 0), vocab_size),
        "top_p": samplers.top_p,
        "min_p": samplers.min_p,
        "presence_penalty": samplers.presence_penalty,
        "frequency_penalty": samplers.frequency_penalty,
        "repetition_penalty": penalty,
        "seed": None if seed is None or seed < 0 else seed,
        "stop": None if samplers.stop is None else tuple(samplers.stop),
    }
    settings: dict[str, Any] = asdict(defaults)
    settings.update((name, value) for name, value in given.items() if value is not None)
    return settings


def read_within(model: type[BodyT], given: Mapping[str, Any], longest: Mapping[str, int], path: str) -> BodyT:
    """As `read_body`, of the object that is the field `path` of a body: errors name its fields in full."""
    try:
        return read_body(model, given, longest)
    except RequestError as error:
        if error.param is None:
            raise
        inner = f"{path}.{error.param}"
        raise RequestError(error.message.replace(error.param, inner, 1), param=inner) from None


def unread(body: Body, refused: Mapping[str, Neutral], path: str = "") -> tuple[str, ...]:
    """Names of the fields that nothing reads. Raises RequestError for one that must not be ignored.

    `path` stands before the names: it is the object's that holds the fields.
    """
    extra = body.model_extra or {}
    refuse(extra, refused, path)
    names: Iterable[str] = sorted(name for name, value in extra.items() if value is not None)
    return tuple(path + name for name in itertools.islice(names, MOST_LISTED) if name not in refused)


SAMPLERS_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "dry_multiplier": (0,),
        "dynatemp_range": (0,),
        "mirostat": (0,),
        "tfs_z": (1,),
        "top_n_sigma": (0, -1),
        "typical_p": (1,),
        "xtc_probability": (0,),
    }
)
"""Samplers of llama.cpp, also under Ollama's options, that draw other tokens than ours would."""
