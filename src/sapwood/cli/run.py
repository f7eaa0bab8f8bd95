"""`sapwood run`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from sapwood.cli.flags import KvMemory, Threads, Weights, choice, size
from sapwood.config import ModelConfig, WeightFormat


def run(
    prompt: Annotated[str, typer.Argument(help="What to answer; - reads it from stdin.", metavar="PROMPT")],
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="A path, a name, hf:org/name or pypi:package.")
    ] = "smollm2-135m",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="Longest answer.", min=0)
    ] = 512,
    temperature: Annotated[float, typer.Option("--temperature", metavar="T", help="0 is greedy.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Makes the draws repeatable.", min=0)
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue PROMPT as it is, without the chat format.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the text.")] = False,
    kv_memory: KvMemory = None,
    weights: Weights = "auto",
    threads: Threads = None,
) -> None:
    """Answer PROMPT once, without a server."""
    from sapwood.cli.local import LocalModel, Options
    from sapwood.cli.talk import Talk

    config = ModelConfig(
        model=model,
        weights=choice("--weights", weights, WeightFormat),
        kv_memory=size("--kv-memory", kv_memory),
        threads=threads,
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    options = Options(max_tokens=max_tokens, temperature=temperature, seed=seed)
    with LocalModel(config, Talk()) as local:
        answer = (
            local.complete(text, options)
            if raw
            else local.answer([{"role": "user", "content": text}], options)
        )
        for piece in answer:
            if not as_json:
                print(piece, end="", flush=True)
        print(json.dumps(local.report()) if as_json else "")
