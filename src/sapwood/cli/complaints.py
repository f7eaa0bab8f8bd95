"""What the parser complains about, in the words that all our errors use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from sapwood.cli.flags import nearest
from sapwood.errors import UsageError

_ELSEWHERE = MappingProxyType(
    {
        "--tp": "--devices",
        "--tp-size": "--devices",
        "--tensor-parallel-size": "--devices",
        "--gpus": "--devices",
        "--num-gpus": "--devices",
        "--max-num-seqs": "--max-running",
        "--max-running-requests": "--max-running",
        "--max-num-batched-tokens": "--chunk-tokens",
        "--chunked-prefill-size": "--chunk-tokens",
        "--gpu-memory-utilization": "--memory-utilization",
        "--mem-fraction-static": "--memory-utilization",
        "--block-size": "--page-size",
        "--data-parallel-size": "--replicas",
        "--dp-size": "--replicas",
    }
)
"""What other engines call our flags."""


def verb_error(arguments: Sequence[str], verbs: Sequence[str]) -> UsageError | None:
    """The error for a verb that does not exist; None where there is none, or a right one."""
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if verb is None or verb in verbs:
        return None
    meant = nearest(verb, verbs)
    told = f"did you mean {meant}?" if meant else f"there are {', '.join(verbs)}"
    return UsageError(f"there is no command {verb!r}; {told}", hint="sapwood --help")


def usage_error(error: Any, arguments: Sequence[str], verbs: Sequence[str]) -> UsageError:
    """From an error of the parser, told apart by its fields: the parser is not imported by name."""
    verb = [word for word in arguments if word in verbs][:1]
    return UsageError(
        _message(error, getattr(error, "ctx", None)), hint=" ".join(["sapwood", *verb, "--help"])
    )


def _message(error: Any, context: Any) -> str:
    flag, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    said = str(error.format_message()).strip()
    if flag is not None and hasattr(error, "possibilities"):
        return _unknown_flag(str(flag), context)
    if flag is not None:
        return f"{flag} takes no value" if "not take" in said else f"{flag} needs a value"
    if said.startswith("Missing") and parameter is not None:
        return f"{_name(parameter)} is missing"
    if extra := re.search(r"unexpected extra argument\S* \((.*)\)", said, re.DOTALL):
        return f"{extra[1]!r} is one argument too many; quote what holds spaces"
    if parameter is not None:
        return f"{_name(parameter)}: {error.message}"
    return said


def _unknown_flag(flag: str, context: Any) -> str:
    parameters = context.command.params if context is not None else ()
    names = [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
    elsewhere = _ELSEWHERE.get(flag)
    meant = elsewhere if elsewhere in names else nearest(flag, [*names, "--help", "--version"])
    return f"there is no flag {flag}" + (f"; did you mean {meant}?" if meant else "")


def _name(parameter: Any) -> str:
    flags = [name for name in parameter.opts if name.startswith("--")]
    return flags[0] if flags else str(parameter.metavar or parameter.name)
