"""Fields of OpenAI-shaped bodies, of OpenAI's own and of other servers', that are not parsed anywhere.

Those that change nothing here pass in silence. Those that would change the answer are refused, unless they have
the value that asks for what is done anyway. So is what looks like a slip of the pen. All others pass, and are
listed.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sapwood.chat.body import shown
from sapwood.errors import RequestError

_ALL_BUT_EQUAL = 0.85
_MOST_COMPARED = 32

Neutral = tuple[Any, ...]
"""The values, besides null, with which a field asks for nothing."""

HARMLESS = frozenset(
    {
        "guided_decoding_backend",
        "include_reasoning",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options.include_obfuscation",
        "user",
        "verbosity",
    }
)
"""Known fields that do not change the answer of the models served here."""

_OTHER_ANSWERS: Mapping[str, Neutral] = MappingProxyType(
    {
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "web_search_options": (),
    }
)
_GRAMMARS: Mapping[str, Neutral] = MappingProxyType(
    {
        "ebnf": ("",),
        "grammar": ("",),
        "guided_whitespace_pattern": (),
        "json_schema": (),
        "regex": ("",),
        "structural_tag": (),
    }
)
_SAMPLING: Mapping[str, Neutral] = MappingProxyType(
    {
        "allowed_token_ids": (),
        "bad_words": ([],),
        "custom_logit_processor": (),
        "custom_params": (),
        "do_sample": (True,),
        "dry_multiplier": (0,),
        "dynatemp_range": (0,),
        "early_stopping": (False,),
        "epsilon_cutoff": (0,),
        "eta_cutoff": (0,),
        "length_penalty": (1,),
        "logits_processors": ([],),
        "max_new_tokens": (),
        "mirostat": (0,),
        "mirostat_mode": (0,),
        "n_predict": (-1,),
        "no_repeat_ngram_size": (0,),
        "num_beams": (1,),
        "num_predict": (),
        "repeat_penalty": (1,),
        "samplers": (),
        "tfs_z": (1,),
        "top_a": (0,),
        "top_n_sigma": (0, -1),
        "typical": (1,),
        "typical_p": (1,),
        "use_beam_search": (False,),
        "xtc_probability": (0,),
    }
)
_PROMPT: Mapping[str, Neutral] = MappingProxyType(
    {
        "chat_template": (),
        "documents": ([],),
        "input_embeds": (),
        "lora_path": (),
        "mm_processor_kwargs": ({},),
        "prompt_embeds": (),
        "truncate": (),
        "truncate_prompt_tokens": (),
    }
)
_OUTPUT: Mapping[str, Neutral] = MappingProxyType(
    {
        "detokenize": (True,),
        "include_stop_str_in_output": (False,),
        "no_stop_trim": (False,),
        "return_hidden_states": (False,),
        "return_tokens_as_token_ids": (False,),
        "skip_special_tokens": (True,),
        "spaces_between_special_tokens": (True,),
        "stop_regex": ("", []),
        "stream_options.continuous_usage_stats": (False,),
    }
)
_EVERYWHERE: Mapping[str, Neutral] = MappingProxyType(
    {**_OTHER_ANSWERS, **_GRAMMARS, **_SAMPLING, **_PROMPT, **_OUTPUT}
)

CHAT_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        **_EVERYWHERE,
        "add_special_tokens": (False,),
        "best_of": (1,),
        "echo": (False,),
        "prompt": (),
        "suffix": ("",),
    }
)
"""Not served by `/v1/chat/completions`."""

COMPLETION_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        **_EVERYWHERE,
        "add_generation_prompt": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
        "max_completion_tokens": (),
        "messages": (),
        "parallel_tool_calls": (True, False),
        "suffix": ("",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_logprobs": (0,),
    }
)
"""Not served by `/v1/completions`."""

MESSAGE_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {"audio": (), "function_call": (), "partial": (False,), "prefix": (False,)}
)
"""Not served in a message."""


def refuse(fields: Mapping[str, Any], refused: Mapping[str, Neutral], path: str = "") -> None:
    """Raises RequestError for the first of `fields` that asks for something not served; `path` is theirs."""
    for name, value in fields.items():
        if value is not None and name in refused and not _is_neutral(value, refused[name]):
            raise unsupported(path + name, value, refused[name])


def unknown(names: Iterable[str], refused: Mapping[str, Neutral]) -> list[str]:
    """Those of `names` that nothing here knows, sorted."""
    return sorted(set(names) - HARMLESS - refused.keys())


def refuse_misspelt(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises RequestError for an unknown name that is all but equal to a known one."""
    known = list(known)
    for name in itertools.islice(names, _MOST_COMPARED):
        outer, dot, inner = name[:80].rpartition(".")
        siblings = [each.removeprefix(outer + dot) for each in known if each.rpartition(".")[0] == outer]
        spellings = {each.lower(): outer + dot + each for each in siblings}
        meant = difflib.get_close_matches(inner.lower(), spellings, n=1, cutoff=_ALL_BUT_EQUAL)
        if meant:
            raise RequestError(
                f"{name[:80]!r} is not known; did you mean {spellings[meant[0]]!r}?",
                param=name[:80],
                code="unknown_parameter",
            )


def unsupported(path: str, value: object, neutral: Neutral) -> RequestError:
    """The error for a field that is not served with this value."""
    message = f"{path!r} is not supported yet; leave it out rather than have it ignored"
    served = [shown(each) for each in neutral if isinstance(each, bool | int) or each]
    if served and not isinstance(value, list | dict):
        message = f"{path!r} is {shown(value)}; only {' or '.join(served)} is supported yet"
    return RequestError(message, param=path, code="unsupported_parameter")


def _is_neutral(value: object, neutral: Neutral) -> bool:
    # In Python 1 is True and 0 is False; in JSON they are not.
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in neutral)
