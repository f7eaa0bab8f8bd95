"""How many tokens a gateway counted, under the names that gateways, tracers and clients have for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sapwood.sim.readers.fields import by_plain_name, decoded, plain

_PROMPT = (
    "native_tokens_prompt",
    "prompt_tokens",
    "input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "tokens_prompt",
    "prompttokens",
    "inputtokens",
    "prompttokencount",
    "contexttokens",
    "request_tokens",
    "input",
)
_OUTPUT = (
    "native_tokens_completion",
    "completion_tokens",
    "output_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "tokens_completion",
    "completiontokens",
    "outputtokens",
    "candidatestokencount",
    "generatedtokens",
    "response_tokens",
    "output",
)
_BESIDE: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "input_tokens": ("cache_read_input_tokens", "cache_creation_input_tokens"),
        "inputtokens": ("cachereadinputtokens", "cachewriteinputtokens"),
        "candidatestokencount": ("thoughtstokencount",),
    }
)
"""What is counted apart: Anthropic's `input_tokens` and Bedrock's `inputTokens` leave out what the cache read or wrote,
Gemini's `candidatesTokenCount` the thoughts.
"""
_MOST = 2**31


@dataclass(frozen=True, slots=True)
class Usage:
    """None is what nobody told."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def whole(self) -> bool:
        return self.prompt_tokens is not None and self.output_tokens is not None


def usage_of(fields: Mapping[str, Any], answer: Any = None) -> Usage:
    """Of a line of a log and the answer in it; the first place that tells a count is believed."""
    found = [_told(place) for place in _places(fields, answer)]
    return Usage(
        next((each.prompt_tokens for each in found if each.prompt_tokens is not None), None),
        next((each.output_tokens for each in found if each.output_tokens is not None), None),
    )


def counted(columns: Sequence[str]) -> tuple[str, ...]:
    """Those of a table that tell how long prompts are and answers."""
    of_plain = {plain(name): name for name in columns}
    chosen = (next((name for name in names if name in of_plain), None) for names in (_PROMPT, _OUTPUT))
    return tuple(of_plain[name] for name in chosen if name is not None)


def _places(fields: Mapping[str, Any], answer: Any) -> Iterator[Mapping[str, Any]]:
    metadata = decoded(fields.get("metadata"))
    for holder, names in (
        (fields, ("usage", "usage_metadata")),
        (answer, ("usage", "usageMetadata")),
        (metadata, ("usage_object", "usage")),
        (fields, ("attributes",)),
    ):
        for name in names if isinstance(holder, Mapping) else ():
            yield _attributes(holder[name]) if name in holder else {}
    yield fields


def _attributes(value: Any) -> Mapping[str, Any]:
    """Of OTLP they are a list of keys, each with a value under the name of its type."""
    if isinstance(value, Mapping):
        return value
    pairs = value if isinstance(value, list) else []
    return {
        str(pair.get("key")): next(iter(pair["value"].values()), None)
        for pair in pairs
        if isinstance(pair, Mapping) and isinstance(pair.get("value"), Mapping)
    }


def _told(place: Mapping[str, Any]) -> Usage:
    named = by_plain_name(place)
    return Usage(_first(named, _PROMPT), _first(named, _OUTPUT))


def _first(named: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """With what is counted beside it."""
    for name in names:
        if (count := count_of(named.get(name))) is not None:
            return count + sum(count_of(named.get(each)) or 0 for each in _BESIDE.get(name, ()))
    return None


def count_of(value: Any) -> int | None:
    """A whole number, also as a text or as `600.0`, which tables with gaps make of it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if 0 <= number < _MOST and number.is_integer() else None
