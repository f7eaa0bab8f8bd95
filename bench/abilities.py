"""What an OpenAI-compatible server that nobody told us about understands, found out by asking it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .answers import Answer
from .asking import Abilities, Ask, Server
from .errors import BenchError, BenchUsageError, StatusError
from .prompts import Form

_TOKENS = 8
_IDS = (504, 1743, 314, 260, 1743, 282, 260, 905)
_FORMS: Sequence[Form] = ("ids", "text", "chat")
_LENGTHS = (("min_tokens", "ignore_eos"), ("ignore_eos",), ("min_tokens",), ())


async def discover(server: Server) -> Server:
    """The same server with its abilities. Raises BenchError with its last refusal if it answers nothing at all."""
    refusal: BenchError | None = None
    for abilities in _guesses():
        candidate = replace(server, abilities=abilities)
        try:
            answer = await candidate.ask(_ask(abilities.form))
            _check_length(answer, abilities)
        except StatusError as error:
            if error.status in (401, 403):
                raise BenchUsageError(
                    f"{server.name} wants an API key: {error}\n\nhint: --api-key KEY"
                ) from error
            refusal = error
            continue
        except BenchError as error:
            refusal = error
            continue
        if abilities.form == "ids" and answer.prompt_tokens not in (None, len(_IDS)):
            continue  # it took the list for something else
        return replace(candidate, abilities=await _told(candidate))
    raise BenchError(f"{server.name} answers neither completions nor chats; it said last: {refusal}")


def _guesses() -> Iterator[Abilities]:
    """From the most able to the least; ids come before anything else, as they make prompts equal for all."""
    for form in _FORMS:
        for usage in (True, False):
            for length in _LENGTHS:
                yield Abilities(form, length, usage, samples=False, exact=False)


def _ask(form: Form, samples: int = 1) -> Ask:
    return Ask(
        _IDS if form == "ids" else "The word is", _TOKENS, samples=samples, temperature=float(samples > 1)
    )


def _check_length(answer: Answer, abilities: Abilities) -> None:
    """Fields that were taken but not heeded are left out. Raises BenchError."""
    if abilities.length and answer.tokens != _TOKENS:
        raise BenchError(f"{answer.tokens} tokens instead of {_TOKENS}")


async def _told(server: Server) -> Abilities:
    """With `n` if that works."""
    able = server.abilities
    try:
        two = await server.ask(_ask(able.form, samples=2))
    except BenchError:
        return able
    return replace(able, samples=two.tokens == 2 * _TOKENS)
