"""`sapwood chat`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from sapwood.chat.thinking import Thought
from sapwood.cli.flags import MODEL, KvMemory, Model, Temperature, Threads, Weights, filled, whole
from sapwood.config import ModelConfig
from sapwood.errors import RequestError, UsageError

if TYPE_CHECKING:
    from sapwood.cli.local import Options, Turn
    from sapwood.cli.talk import Talk

KEY_VARIABLE = "SAPWOOD_API_KEY"
"""Of the environment: other users of the machine can read a command line."""


class Partner(Protocol):
    """Whoever answers: a model in this process, or a server."""

    def answer(self, messages: Sequence[Mapping[str, str]], options: Options) -> Iterator[str | Thought]: ...

    @property
    def turn(self) -> Turn: ...


def chat(
    model: Model = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Talk to a server instead of loading a model.",
            parser=filled("--url"),
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar=KEY_VARIABLE,
            help="Sent to the server that --url names.",
            show_envvar=True,
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="The system message.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            help="Longest answer; default: what fits.",
            parser=whole("--max-tokens", 1),
        ),
    ] = None,
    temperature: Temperature = 0.0,
    kv_memory: KvMemory = None,
    weights: Weights = MODEL.weights,
    threads: Threads = None,
) -> None:
    """Talk with MODEL. Each turn tells how much of its prompt was reused.

    An empty line or Ctrl-D ends; Ctrl-C cuts an answer short, and anywhere else ends with status 130.
    """
    from sapwood.cli.local import LocalModel, Options
    from sapwood.cli.remote import RemoteModel
    from sapwood.cli.talk import Talk

    if url is not None and (kv_memory is not None or threads is not None or weights != MODEL.weights):
        raise UsageError("--url takes the server's own --kv-memory, --weights and --threads")
    talk = Talk()
    with ExitStack() as stack:
        partner: Partner
        if url is not None:
            partner = RemoteModel(url, model, api_key or None)
        else:
            config = ModelConfig(
                model=MODEL.model if model is None else model,
                weights=weights,
                kv_memory=kv_memory,
                threads=threads,
            )
            partner = stack.enter_context(LocalModel(config, talk))
        converse(partner, talk, Options(max_tokens=max_tokens, temperature=temperature), system)


def converse(partner: Partner, talk: Talk, options: Options, system: str | None) -> None:
    """Turns until an empty line or the end of the input."""
    history: list[dict[str, str]] = [] if system is None else [{"role": "system", "content": system}]
    while line := talk.ask("> "):
        history.append({"role": "user", "content": line})
        try:
            text = _speak(partner.answer(history, options), talk)
        except RequestError as error:
            # This turn cannot be answered (it no longer fits, say); the ones before stand.
            talk.say(str(error))
            history.pop()
            continue
        history.append({"role": "assistant", "content": text})
        talk.say(f"reused {partner.turn.reused_tokens} of {partner.turn.prompt_tokens} tokens")


def _speak(pieces: Iterator[str | Thought], talk: Talk) -> str:
    """Print an answer as it comes, and what is thought before it on stderr. Ctrl-C cuts it short; what was said
    stays said."""
    said: list[str] = []
    cut = thinking = False
    try:
        for piece in pieces:
            if isinstance(piece, Thought):
                talk.aside(piece.text)
                thinking = True
                continue
            if thinking:
                talk.say("")
                thinking = False
            said.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        cut = True
    if thinking:
        talk.say("")
    print(flush=True)
    if cut:
        talk.say("interrupted")
    return "".join(said)
