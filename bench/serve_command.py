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

from .asking import Dialect, Server
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

    ours: Address | None
    against: Address | None
    llama: Path | None
    model: str
    threads: int
    serve_args: tuple[str, ...]
    llama_args: tuple[str, ...]

    @contextlib.asynccontextmanager
    async def open(self, slots: int) -> AsyncIterator[Sides]:
        async with contextlib.AsyncExitStack() as stack:
            # Servers that should run already are asked first: nothing is started for one that does not.
            up_ours = await _up("sapwood", self.ours, "sapwood")
            up_peer = await _up("peer", self.against, "openai")
            ours = up_ours or await self._start(stack, self.our_launch())
            launch = self.peer_launch(slots)
            peer = up_peer or (await self._start(stack, launch) if launch else None)
            yield Sides(ours, peer)

    async def _start(self, stack: contextlib.AsyncExitStack, launch: Launch) -> Server:
        tell(f"starting {launch.name}")
        return await stack.enter_async_context(running(launch))

    def our_launch(self) -> Launch:
        return launch_ours(self.model, self.threads, self.serve_args)

    def peer_launch(self, slots: int) -> Launch | None:
        if self.llama is None or self.against is not None:
            return None
        file = _weights_file(self.model)
        return launch_llama(self.llama, file, self.threads, slots, SLOT_CONTEXT, self.llama_args)


async def _up(name: str, address: Address | None, dialect: Dialect) -> Server | None:
    if address is None:
        return None
    server = await connect(name, address, dialect)
    await warm_up(server)
    return server


def run_serve(options: argparse.Namespace) -> int:
    """Raises BenchError."""
    before = Moment.now()
    plan, cases = _plan(options), _cases(options)
    lasting = options.ours or options.against
    seed = options.seed if options.seed is not None else (secrets.randbits(32) if lasting else 1)
    rows = asyncio.run(run_cases(cases, plan.open, Prompts(seed)))
    regime = {"suite": "serve", "size": options.size, "seed": seed, **_sides_regime(plan, cases)}
    emit(make_document(regime, rows, before, options.typed), Output(options.out, options.json))
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    if options.against is not None and options.llama_server is not None:
        raise BenchUsageError("--against and --llama-server both name the peer; give one")
    ours, against = _address("--ours", options.ours), _address("--against", options.against)
    wants_llama = options.peer != "none" and options.against is None
    llama = find_llama_server(options.llama_server) if wants_llama else None
    if options.peer == "llama" and wants_llama and llama is None:
        raise BenchUsageError(
            "llama-server was not found; give --llama-server PATH, LLAMA_SERVER or --peer none"
        )
    if wants_llama and llama is None:
        tell("no llama-server was found: ours is measured alone")
    return Plan(
        ours,
        against,
        llama,
        options.model,
        options.threads,
        tuple(options.serve_arg),
        tuple(options.llama_arg),
    )


def _address(flag: str, url: str | None) -> Address | None:
    try:
        return None if url is None else Address.parse(url)
    except BenchUsageError as error:
        raise BenchUsageError(f"{flag}: {error}") from None


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
