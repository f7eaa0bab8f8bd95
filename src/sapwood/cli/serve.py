"""`sapwood serve`."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.flags import (
    MODEL,
    KvMemory,
    Model,
    Threads,
    Weights,
    file_name,
    filled,
    metavar,
    one_of,
    real,
    size,
    whole,
    words,
)
from sapwood.config import (
    CacheConfig,
    Compute,
    EvictionName,
    IndexName,
    KvDtype,
    LedgerName,
    ModelConfig,
    OrderName,
    SchedulerConfig,
    ServerConfig,
    SpeculateName,
)
from sapwood.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from sapwood.cli.talk import Talk
    from sapwood.engine import Built

CACHE, SCHEDULER, SERVER = CacheConfig(), SchedulerConfig(), ServerConfig()
"""The defaults."""


def _cache_dir(value: Any) -> str:
    if value != "none":
        raise UsageError("--cache-dir takes only none so far", hint="prefixes live as long as the process")
    return str(value)


def serve(
    model: Model = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on.", parser=filled("--host"), metavar="HOST")
    ] = SERVER.host,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", help="Port; 0 takes a free one.", parser=whole("--port", 0, 65535)
        ),
    ] = SERVER.port,
    kv_memory: KvMemory = None,
    page_size: Annotated[
        int,
        typer.Option(
            "--page-size",
            metavar="N",
            help="Tokens per page; a hit ends at a page's end.",
            parser=whole("--page-size", 1, 256),
        ),
    ] = CACHE.page_size,
    prefix_index: Annotated[
        IndexName,
        typer.Option(
            "--prefix-index",
            metavar=metavar(IndexName),
            help="radix: any length; blocks: whole hashed pages; none: no reuse.",
            parser=one_of("--prefix-index", words(IndexName)),
        ),
    ] = CACHE.prefix_index,
    eviction_policy: Annotated[
        EvictionName,
        typer.Option(
            "--eviction-policy",
            metavar=metavar(EvictionName),
            help="Which prefix gives up its pages first; default: the one least likely to be used again, for its cost; "
            "priority: lru, as retained prefixes go last under all.",
            parser=one_of("--eviction-policy", words(EvictionName)),
        ),
    ] = CACHE.eviction_policy,
    pin_share: Annotated[
        float,
        typer.Option(
            "--pin-share",
            metavar="FRACTION",
            help="Of the pages, how much POST /v1/cache/pins may keep for good.",
            parser=real("--pin-share", 0, 1),
        ),
    ] = CACHE.pin_share,
    score_memory: Annotated[
        int,
        typer.Option(
            "--score-memory",
            metavar="SIZE",
            help="For prompts' logprobs, kept so that scoring them again is a hit; default: 64MiB.",
            show_default=False,
            parser=size("--score-memory"),
        ),
    ] = CACHE.score_memory,
    schedule_policy: Annotated[
        OrderName,
        typer.Option(
            "--schedule-policy",
            metavar=metavar(OrderName),
            help="Order of the waiting requests; default: most reuse first, with bounded waiting.",
            parser=one_of("--schedule-policy", words(OrderName)),
        ),
    ] = SCHEDULER.schedule_policy,
    chunk_tokens: Annotated[
        int,
        typer.Option(
            "--chunk-tokens",
            metavar="N",
            help="Most tokens computed in one step.",
            parser=whole("--chunk-tokens", 1),
        ),
    ] = SCHEDULER.chunk_tokens,
    max_running: Annotated[
        int,
        typer.Option(
            "--max-running",
            metavar="N",
            help="Most sequences that run at once.",
            parser=whole("--max-running", 1),
        ),
    ] = SCHEDULER.max_running,
    speculate: Annotated[
        SpeculateName,
        typer.Option(
            "--speculate",
            metavar=metavar(SpeculateName),
            help="Guess answers ahead and check several tokens in a step, where that pays.",
            parser=one_of("--speculate", words(SpeculateName)),
        ),
    ] = SCHEDULER.speculate,
    max_context: Annotated[
        int | None,
        typer.Option(
            "--max-context",
            metavar="N",
            help="Longest prompt + answer in tokens; default: the model's.",
            parser=whole("--max-context", 2),
        ),
    ] = None,
    weights: Weights = MODEL.weights,
    kv_dtype: Annotated[
        KvDtype,
        typer.Option(
            "--kv-dtype",
            metavar=metavar(KvDtype),
            help="How keys and values are stored; q8 takes half the memory of f16.",
            parser=one_of("--kv-dtype", words(KvDtype)),
        ),
    ] = MODEL.kv_dtype,
    compute: Annotated[
        Compute,
        typer.Option(
            "--compute",
            metavar=metavar(Compute),
            help="How 8- and 4-bit weights are multiplied; auto: with activations in 16 bits; int8: 4-bit ones in 8.",
            parser=one_of("--compute", words(Compute)),
        ),
    ] = MODEL.compute,
    threads: Threads = None,
    ledger: Annotated[
        LedgerName,
        typer.Option(
            "--ledger",
            metavar=metavar(LedgerName),
            help="Whose numbers `usage` shows: the provider's rules', what was really not computed, or (auto)"
            " the latter on OpenAI's routes alone.",
            parser=one_of("--ledger", words(LedgerName)),
        ),
    ] = SERVER.ledger,
    anthropic_minimum: Annotated[
        int,
        typer.Option(
            "--anthropic-minimum",
            metavar="N",
            help="Shortest prefix that the Anthropic routes' ledger caches.",
            parser=whole("--anthropic-minimum", 1),
        ),
    ] = SERVER.anthropic_minimum,
    step_ledger_clock: Annotated[
        bool,
        typer.Option(
            "--step-ledger-clock",
            help="POST /v1/ledgers/clock puts the ledgers' time forward, to try out what expires.",
            hidden=True,
        ),
    ] = False,
    api_keys: Annotated[
        str | None,
        typer.Option(
            "--api-keys",
            metavar="FILE",
            help="Tenants and their keys (TOML); default: no keys, everyone is the operator.",
            parser=file_name("--api-keys"),
        ),
    ] = None,
    served_model_name: Annotated[
        str | None,
        typer.Option(
            "--served-model-name",
            metavar="NAME",
            help="The name that clients use; default: the model's.",
            parser=filled("--served-model-name"),
        ),
    ] = None,
    capture: Annotated[
        str | None,
        typer.Option(
            "--capture",
            metavar="FILE",
            help="Append every request, its tokens and its answer, to FILE, to replay it; default: nothing is kept.",
            parser=file_name("--capture"),
        ),
    ] = None,
    cache_dir: Annotated[
        str,
        typer.Option(
            "--cache-dir",
            metavar="none",
            help="Where prefixes outlive the process: none yet.",
            parser=_cache_dir,
        ),
    ] = "none",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="One JSON line per request on stderr.")
    ] = False,
) -> None:
    """Serve MODEL over HTTP to clients of OpenAI, Anthropic, Gemini, Ollama and others. Ctrl-C ends it, status 0."""
    del cache_dir  # there is one so far, and it is checked
    _serve(
        ModelConfig(
            model=MODEL.model if model is None else model,
            weights=weights,
            kv_dtype=kv_dtype,
            compute=compute,
            kv_memory=kv_memory,
            threads=threads,
        ),
        CacheConfig(
            page_size=page_size,
            prefix_index=prefix_index,
            eviction_policy=eviction_policy,
            pin_share=pin_share,
            score_memory=score_memory,
        ),
        SchedulerConfig(
            chunk_tokens=chunk_tokens,
            max_running=max_running,
            max_context=max_context,
            schedule_policy=schedule_policy,
            speculate=speculate,
        ),
        ServerConfig(
            host=host,
            port=port,
            served_model_name=served_model_name,
            ledger=ledger,
            anthropic_minimum=anthropic_minimum,
            step_ledger_clock=step_ledger_clock,
            log_json=log_json,
            api_keys=None if api_keys is None else Path(api_keys),
            capture=None if capture is None else Path(capture),
        ),
    )


def _serve(model: ModelConfig, cache: CacheConfig, scheduler: SchedulerConfig, config: ServerConfig) -> None:
    from sapwood.cli.talk import Talk
    from sapwood.engine import LineFile, build_engine
    from sapwood.model import check_name
    from sapwood.server import Server

    check_name(model.model)  # before anyone can connect to a server that will never be
    talk = Talk()
    capture = None if config.capture is None else LineFile(config.capture)

    def go_on(step: str, progress: Callable[[str], None]) -> None:
        if server.stopping:
            raise UnavailableError("stopped while the model was loading")
        progress(step)

    def load() -> Built:
        with talk.working(f"loading {model.model}") as progress:
            built = build_engine(
                model, cache, scheduler, progress=lambda step: go_on(step, progress), capture=capture
            )
        _introduce(built, scheduler.max_context, talk)
        return built

    server = Server(load, config, talk.say)
    talk.say(f"listening on {server.url}, loading {model.model}")
    if config.api_keys is None and not _is_loopback(config.host):
        talk.say(
            f"note: without --api-keys, everyone who can reach {config.host} is an operator of one cache"
            " that all share: anyone may flush it, or tell from its speed what others have asked"
        )
    if capture is not None:
        talk.say(f"note: requests, their tokens and their answers, are written to {config.capture}")
    try:
        server.run()
    finally:
        if capture is not None:
            capture.close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _introduce(built: Built, max_context: int | None, talk: Talk) -> None:
    """What was built, for the operator."""
    from sapwood.units import format_size

    facts = built.facts
    exactness = "exact" if facts.exact else "not exact"
    tokens = facts.capacity_pages * facts.page_size
    talk.say(f"{facts.model} · {facts.ops} ops, {exactness} · context {facts.max_context} tokens")
    talk.say(f"KV: {tokens} tokens in {format_size(facts.kv_memory)} ({facts.kv_memory_reason})")
    notices = list(facts.notices)
    if max_context is not None and max_context > facts.max_context:
        notices.append(
            f"--max-context is {max_context}, more than the model's {facts.max_context}, which holds"
        )
    for notice in notices:
        talk.say(f"note: {notice}")
