"""`bench serve`: which servers, which cases, and the regime that says so."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .asking import Server
from .cases import Case, all_cases
from .client import Address
from .document import Output, emit, make_document, tell
from .errors import BenchError, BenchUsageError
from .noise import Moment
from .processes import (
    Launch,
    connect,
    find_llama_server,
    launch_llama,
    launch_ours,
    llama_version,
    running,
    warm_up,
)
from .prompts import Prompts
from .serve_suite import Sides, run_cases

SLOT_CONTEXT = 4096
"""Tokens of context for each of llama.cpp's slots: enough for every case."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each side comes from: a URL that is up already, or a program to start; perhaps no peer at all."""

    ours: str | None
    against: str | None
    llama: Path | None
    model: str
    threads: int
    serve_args: tuple[str, ...]
    llama_args: tuple[str, ...]

    @contextlib.asynccontextmanager
    async def open(self, slots: int) -> AsyncIterator[Sides]:
        async with contextlib.AsyncExitStack() as stack:
            ours = await self._our_side(stack)
            peer = await self._peer_side(stack, slots)
            yield Sides(ours, peer)

    async def _our_side(self, stack: contextlib.AsyncExitStack) -> Server:
        if self.ours is not None:
            server = await connect("sapwood", Address.parse(self.ours), "sapwood")
            await warm_up(server)
            return server
        tell("starting sapwood")
        return await stack.enter_async_context(running(self.our_launch()))

    async def _peer_side(self, stack: contextlib.AsyncExitStack, slots: int) -> Server | None:
        if self.against is not None:
            server = await connect("peer", Address.parse(self.against), "openai")
            await warm_up(server)
            return server
        launch = self.peer_launch(slots)
        if launch is None:
            return None
        tell(f"starting {launch.name} with {slots} slots")
        return await stack.enter_async_context(running(launch))

    def our_launch(self) -> Launch:
        return launch_ours(self.model, self.threads, self.serve_args)

    def peer_launch(self, slots: int) -> Launch | None:
        if self.llama is None or self.against is not None:
            return None
        file = _weights_file(self.model)
        return launch_llama(self.llama, file, self.threads, slots, SLOT_CONTEXT, self.llama_args)


def run_serve(options: argparse.Namespace) -> int:
    """Raises BenchError."""
    before = Moment.now()
    plan, cases = _plan(options), _cases(options)
    lasting = options.ours or options.against
    seed = options.seed if options.seed is not None else (secrets.randbits(32) if lasting else 1)
    rows = asyncio.run(run_cases(cases, plan.open, Prompts(seed)))
    regime = {"suite": "serve", "size": options.size, "seed": seed, **_sides_regime(plan, cases)}
    emit(make_document(regime, rows, before, options.given), Output(options.out, options.json))
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    wants_llama = options.peer != "none" and options.against is None
    llama = find_llama_server(options.llama_server) if wants_llama else None
    if options.peer == "llama" and wants_llama and llama is None:
        raise BenchUsageError(
            "llama-server was not found; give --llama-server PATH, LLAMA_SERVER or --peer none"
        )
    if wants_llama and llama is None:
        tell("no llama-server was found: ours is measured alone")
    return Plan(
        options.ours,
        options.against,
        llama,
        options.model,
        options.threads,
        tuple(options.serve_arg),
        tuple(options.llama_arg),
    )


def _cases(options: argparse.Namespace) -> Sequence[Case]:
    cases = all_cases(options.size)
    if options.cases:
        wanted = [name.strip() for name in options.cases.split(",")]
        unknown = sorted(set(wanted) - {case.name for case in cases})
        if unknown:
            known = ", ".join(case.name for case in cases)
            raise BenchUsageError(f"no case is called {', '.join(unknown)}; there are {known}")
        cases = [case for case in cases if case.name in wanted]
    if options.pairs is not None:
        if options.pairs < 1:
            raise BenchUsageError(f"--pairs is {options.pairs}; it must be at least 1")
        cases = [_with_pairs(case, options.pairs) for case in cases]
    return cases


def _with_pairs(case: Any, pairs: int) -> Case:
    changed: Case = replace(case, pairs=pairs)
    return changed


def _sides_regime(plan: Plan, cases: Sequence[Case]) -> dict[str, Any]:
    regime: dict[str, Any] = {
        "model": Path(plan.model).name if "/" in plan.model else plan.model,
        "threads": plan.threads,
        "decoding": "greedy, streamed, a new connection for each request",
        "ours": "a running server" if plan.ours else plan.our_launch().flags,
    }
    if plan.against is not None:
        return {**regime, "peer": "a running OpenAI-compatible server"}
    launches = [plan.peer_launch(slots) for slots in sorted({case.slots for case in cases})]
    flags = {launch.flags: None for launch in launches if launch is not None}
    if plan.llama is None or not flags:
        return {**regime, "peer": None}
    peer = {"name": "llama.cpp server", "version": llama_version(plan.llama), "flags": list(flags)}
    return {**regime, "weights": _weights_file(plan.model).name, "peer": peer}


def _weights_file(model: str) -> Path:
    from sapwood.errors import SapwoodError
    from sapwood.model import resolve

    try:
        path = resolve(model, progress=tell)
    except SapwoodError as error:
        raise BenchError(str(error)) from error
    if path.suffix != ".gguf":
        raise BenchError(f"{path.name} is no GGUF file; llama.cpp reads only those (or use --peer none)")
    return path
