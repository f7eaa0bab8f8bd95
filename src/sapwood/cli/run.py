"""`sapwood run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from sapwood.cli.flags import MODEL, KvMemory, Temperature, Threads, Weights, file_name, whole
from sapwood.config import ModelConfig
from sapwood.errors import UsageError


def run(
    prompt: Annotated[str, typer.Argument(help="What to answer; - reads it from stdin.", metavar="PROMPT")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A path, a name, hf:org/name[:file] or pypi:package.",
            parser=file_name("--model"),
        ),
    ] = MODEL.model,
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", metavar="N", help="Longest answer.", parser=whole("--max-tokens", 0)),
    ] = 512,
    temperature: Temperature = 0.0,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Makes the draws repeatable.",
            parser=whole("--seed", 0, 2**64 - 1),
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue PROMPT as it is, without the chat format.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the text.")] = False,
    kv_memory: KvMemory = None,
    weights: Weights = MODEL.weights,
    threads: Threads = None,
) -> None:
    """Answer PROMPT once, without a server. Ctrl-C ends it with status 130."""
    from sapwood.cli.local import LocalModel, Options
    from sapwood.cli.talk import Talk

    config = ModelConfig(model=model, weights=weights, kv_memory=kv_memory, threads=threads)
    text = _stdin() if prompt == "-" else prompt
    options = Options(max_tokens=max_tokens, temperature=temperature, seed=seed)
    with LocalModel(config, Talk()) as local:
        answer = (
            local.complete(text, options)
            if raw
            else local.answer([{"role": "user", "content": text}], options)
        )
        if as_json:
            list(answer)
            print(json.dumps(local.report()))
        else:
            _stream(answer)


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise UsageError("what stdin holds is no text in UTF-8") from None


def _stream(answer: Iterator[str]) -> None:
    """Print the pieces as they come, and the end of the line however they end."""
    begun = False
    try:
        for piece in answer:
            print(piece, end="", flush=True)
            begun = True
    except KeyboardInterrupt:
        if begun:
            print(flush=True)
        raise
    print(flush=True)
