"""`sapwood serve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from sapwood.cli.flags import KvMemory, Model, Threads, Weights, choice, size
from sapwood.config import (
    CacheConfig,
    EvictionName,
    IndexName,
    KvDtype,
    LedgerName,
    ModelConfig,
    OrderName,
    SchedulerConfig,
    ServerConfig,
    WeightFormat,
)
from sapwood.errors import UnavailableError, UsageError


def serve(
    model: Model = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    kv_memory: KvMemory = None,
    page_size: Annotated[int, typer.Option("--page-size", metavar="N", help="Tokens per page.")] = 1,
    prefix_index: Annotated[
        str, typer.Option("--prefix-index", metavar="radix|none", help="none switches reuse off.")
    ] = "radix",
    eviction_policy: Annotated[
        str, typer.Option("--eviction-policy", metavar="lru", help="Which prefix gives up its pages first.")
    ] = "lru",
    schedule_policy: Annotated[
        str, typer.Option("--schedule-policy", metavar="fcfs|lpm", help="Order of the waiting requests.")
    ] = "lpm",
    chunk_tokens: Annotated[
        int, typer.Option("--chunk-tokens", metavar="N", help="Most tokens computed in one step.")
    ] = 512,
    max_running: Annotated[
        int, typer.Option("--max-running", metavar="N", help="Most sequences that run at once.")
    ] = 32,
    max_context: Annotated[
        int | None,
        typer.Option("--max-context", metavar="N", help="Longest prompt + answer in tokens."),
    ] = None,
    weights: Weights = "auto",
    kv_dtype: Annotated[
        str, typer.Option("--kv-dtype", metavar="f16|bf16|f32", help="How keys and values are stored.")
    ] = "f16",
    threads: Threads = None,
    ledger: Annotated[
        str, typer.Option("--ledger", metavar="auto|physical", help="Whose numbers `usage` shows.")
    ] = "auto",
    served_model_name: Annotated[
        str | None, typer.Option("--served-model-name", metavar="NAME", help="The name that clients use.")
    ] = None,
    cache_dir: Annotated[
        str,
        typer.Option("--cache-dir", metavar="none", help="Where prefixes outlive the process: none yet."),
    ] = "none",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="One JSON line per request on stderr.")
    ] = False,
) -> None:
    """Serve MODEL over HTTP: OpenAI's completions, chat completions and models."""
    _refuse_what_is_to_come(ledger, cache_dir)
    model_config = ModelConfig(
        model=model or ModelConfig().model,
        weights=choice("--weights", weights, WeightFormat),
        kv_dtype=choice("--kv-dtype", kv_dtype, KvDtype),
        kv_memory=size("--kv-memory", kv_memory),
        threads=threads,
    )
    cache = CacheConfig(
        page_size=page_size,
        prefix_index=choice("--prefix-index", prefix_index, IndexName),
        eviction_policy=choice("--eviction-policy", eviction_policy, EvictionName),
    )
    scheduler = SchedulerConfig(
        chunk_tokens=chunk_tokens,
        max_running=max_running,
        max_context=max_context,
        schedule_policy=choice("--schedule-policy", schedule_policy, OrderName),
    )
    server = ServerConfig(
        host=host,
        port=port,
        served_model_name=served_model_name,
        ledger=choice("--ledger", ledger, LedgerName),
        log_json=log_json,
    )
    _serve(model_config, cache, scheduler, server)


def _serve(model: ModelConfig, cache: CacheConfig, scheduler: SchedulerConfig, config: ServerConfig) -> None:
    from sapwood.cli.talk import Talk
    from sapwood.engine import Built, build_engine
    from sapwood.server import Server
    from sapwood.units import format_size

    talk = Talk()

    def go_on(step: str, progress: Callable[[str], None]) -> None:
        if server.stopping:
            raise UnavailableError("stopped while the model was loading")
        progress(step)

    def load() -> Built:
        with talk.working(f"loading {model.model}") as progress:
            built = build_engine(model, cache, scheduler, progress=lambda step: go_on(step, progress))
        facts = built.facts
        exactness = "exact" if facts.exact else "not exact"
        tokens = facts.capacity_pages * facts.page_size
        talk.say(f"{facts.model} · {facts.ops} ops, {exactness} · context {facts.max_context} tokens")
        talk.say(f"KV: {tokens} tokens in {format_size(facts.kv_memory)}, {facts.kv_memory_reason}")
        for notice in facts.notices:
            talk.say(f"note: {notice}")
        return built

    server = Server(load, config, talk.say)
    talk.say(f"listening on {server.url}, loading {model.model}")
    server.run()


def _refuse_what_is_to_come(ledger: str, cache_dir: str) -> None:
    if ledger == "contract":
        raise UsageError(
            "--ledger contract is not there yet", hint="use physical, what was really not recomputed"
        )
    if cache_dir != "none":
        raise UsageError("--cache-dir takes only none so far", hint="prefixes live as long as the process")
