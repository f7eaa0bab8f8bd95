"""`bench serve`: which servers, which cases, and the regime that says so."""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .abilities import discover
from .asking import Server
from .cases import Case, all_cases
from .client import Address
from .combine import save_by_peer
from .document import Output, emit, make_document, tell
from .entrants import Entrant
from .errors import BenchUsageError
from .noise import Moment
from .ours import Ours, weights_file
from .peers.base import Peer, Setup, Where
from .peers.registry import find_peers
from .peers.weights import Weights
from .processes import connect, warm_up
from .prompts import Form, Prompts
from .rows import Row
from .serve_suite import Contest, run_contest

_WEAKEST_FIRST: Sequence[Form] = ("chat", "text", "ids")


def run_serve(options: argparse.Namespace) -> int:
    """Raises BenchError."""
    check_sides(options)
    return asyncio.run(_run(options))


def check_sides(options: argparse.Namespace) -> None:
    """Raises BenchUsageError for flags that contradict each other."""
    if options.against is not None and options.llama_server is not None:
        raise BenchUsageError("--against and --llama-server both name the peer; give one")
    for flag, value in (("--api-key", options.api_key), ("--against-model", options.against_model)):
        if value is not None and options.against is None:
            raise BenchUsageError(f"{flag} is for the server of --against URL, which is missing")
    for flag, url in (("--against", options.against), ("--ours", options.ours)):
        if url is not None:
            _address(flag, url)
    if options.alone and options.against is None:
        raise BenchUsageError("--alone measures the server of --against URL, which is missing")
    if options.alone and options.ours is not None:
        raise BenchUsageError("--alone measures no server of ours; leave --ours out")


async def _run(options: argparse.Namespace) -> int:
    before = Moment.now()
    cases = _cases(options)
    peers = _peers(options)
    running = await _running(options)
    setup = Setup(_weights(options), options.threads) if peers else None
    contest = _contest(options, cases, running, _started(peers, setup))
    rows: list[Row] = []
    failures: list[str] = []
    regime = _regime(options, contest, peers, setup)
    async for result in run_contest(contest):
        rows += result.rows
        failures += result.failures
        if failures:
            regime["failures"] = failures
        if options.out is not None:  # what is measured is not lost if a later case never ends
            save_by_peer(make_document(regime, rows, before, options.typed), options.out)
    emit(make_document(regime, rows, before, options.typed), Output(None, options.json))
    return 0


def _peers(options: argparse.Namespace) -> Sequence[Peer]:
    if options.against is not None:
        return ()
    folder = options.peers_folder or Where.default_folder()
    wanted = "llama" if options.llama_server and options.peers == "auto" else options.peers
    return find_peers(wanted, Where(folder, options.llama_server))


def _weights(options: argparse.Namespace) -> Weights:
    folder = options.peers_folder or Where.default_folder()
    return Weights(weights_file(options.model), folder.absolute() / "weights")


def _started(peers: Sequence[Peer], setup: Setup | None) -> Sequence[Entrant]:
    return [
        Entrant(peer.name, lambda needs, peer=peer: peer.launches(setup, needs), floor=peer.floor)  # type: ignore[misc]
        for peer in peers
        if setup is not None
    ]


async def _running(options: argparse.Namespace) -> dict[str, Server]:
    """Servers that should run already are asked first: nothing is started for one that does not."""
    found: dict[str, Server] = {}
    if options.ours is not None:
        found["ours"] = await connect("sapwood", _address("--ours", options.ours), "sapwood")
    if options.against is not None:
        address = replace(_address("--against", options.against), key=options.api_key)
        server = await connect("peer", address, "openai", options.against_model)
        found["peer"] = await discover(server)
        able = found["peer"].abilities
        tell(
            f"the peer takes {able.form}; kept from ending early by {' and '.join(able.length) or 'nothing'}"
        )
    weakest = next(form for form in _WEAKEST_FIRST if form == "ids" or _uses(found, form))
    found = {
        side: replace(server, abilities=replace(server.abilities, form=weakest))
        for side, server in found.items()
    }
    for server in found.values():
        await warm_up(server)
    return found


def _uses(servers: dict[str, Server], form: Form) -> bool:
    return any(server.abilities.form == form for server in servers.values())


def _contest(
    options: argparse.Namespace,
    cases: Sequence[tuple[Case, Case]],
    running: dict[str, Server],
    started: Sequence[Entrant],
) -> Contest:
    peer = running.get("peer")
    form: Form = "ids" if peer is None else peer.abilities.form
    lasting = bool(running)
    seed = options.seed if options.seed is not None else (secrets.randbits(32) if lasting else 1)
    if options.alone and peer is not None:
        return Contest(Entrant(peer.name, server=peer), (), cases, Prompts(seed, form), options.case_seconds)
    ours = _our_entrant(options, running.get("ours"), form)
    peers = [*started, *([Entrant(peer.name, server=peer)] if peer is not None else [])]
    return Contest(
        ours, peers, cases, Prompts(seed, form), options.case_seconds, thorough=options.size == "full"
    )


def _our_entrant(options: argparse.Namespace, server: Server | None, form: Form) -> Entrant:
    if server is not None:
        return Entrant("sapwood", server=server)
    choices = [
        Ours(model, options.threads, tuple(options.serve_arg), form, _label(options, model))
        for model in (options.model, *options.or_model)
    ]
    return Entrant("sapwood", lambda needs: [ours.launch(needs) for ours in choices])


def _label(options: argparse.Namespace, model: str) -> str:
    return Path(model).stem if options.or_model else ""


def _address(flag: str, url: str) -> Address:
    try:
        return Address.parse(url)
    except BenchUsageError as error:
        raise BenchUsageError(f"{flag}: {error}") from None


def _cases(options: argparse.Namespace) -> Sequence[tuple[Case, Case]]:
    """Each with the smaller version that scouts run."""
    scouts = all_cases("quick" if options.size == "quick" else "scout")
    cases = list(zip(all_cases(options.size), scouts, strict=True))
    if options.cases:
        wanted = [name.strip() for name in options.cases.split(",")]
        unknown = sorted(set(wanted) - {case.name for case, _ in cases})
        if unknown:
            known = ", ".join(case.name for case, _ in cases)
            raise BenchUsageError(f"no case is called {', '.join(unknown)}; there are {known}")
        cases = [pair for pair in cases if pair[0].name in wanted]
    if options.pairs is not None:
        if options.pairs < 1:
            raise BenchUsageError(f"--pairs is {options.pairs}; it must be at least 1")
        cases = [(_with_pairs(case, options.pairs), scout) for case, scout in cases]
    return cases


def _with_pairs(case: Any, pairs: int) -> Case:
    changed: Case = replace(case, pairs=pairs)
    return changed


def _regime(
    options: argparse.Namespace, contest: Contest, peers: Sequence[Peer], setup: Setup | None
) -> dict[str, Any]:
    regime: dict[str, Any] = {
        "suite": "serve",
        "size": options.size,
        "seed": contest.prompts.seed,
        "prompts": contest.prompts.form,
        "decoding": "greedy, streamed, a new connection for each request",
    }
    if options.alone:
        return {**regime, "measured": "a running OpenAI-compatible server, alone"}
    model = options.model
    regime |= {"model": Path(model).name if "/" in model else model, "threads": options.threads}
    regime["ours"] = _flags(contest, contest.ours) or "a running server"
    if options.against is not None:
        return {**regime, "peer": "a running OpenAI-compatible server"}
    if setup is None:
        return {**regime, "peer": None}
    started = {entrant.name: entrant for entrant in contest.peers}
    return {
        **regime,
        "weights": setup.weights.source.name,
        "peers": {
            peer.name: {"version": peer.version, "flags": _flags(contest, started[peer.name])}
            for peer in peers
        },
    }


def _flags(contest: Contest, entrant: Entrant) -> list[str]:
    """Of the first setting for each kind of case; the others differ as their names say."""
    firsts = [entrant.candidates(case)[:1] for case, _ in contest.cases]
    return list(dict.fromkeys(launch.flags for first in firsts for launch in first))
