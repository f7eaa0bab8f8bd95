"""Starts and stops the servers that are compared: children of this process on 127.0.0.1, ended by pid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO

from .asking import Abilities, Ask, Dialect, Server
from .client import Address, exchange
from .document import shown_argument, tell
from .errors import BenchError, StatusError
from .machine import read_text
from .prompts import Prompts

READY_SECONDS = 420.0
"""vLLM compiles its model when it is started for the first time."""
STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A server to start; `--port N` is added to the command.

    Attributes:
        environment: added to ours.
        setting: which of its peer's settings this is, in a few words.
    """

    name: str
    dialect: Dialect
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    setting: str = ""
    abilities: Abilities = field(default_factory=Abilities)

    @property
    def flags(self) -> str:
        """What it was started with, without what is only true on this machine."""
        shown = [shown_argument(f"{name}={value}") for name, value in self.environment.items()]
        return " ".join([*shown, *(shown_argument(word) for word in self.command[1:])])


class Child:
    """A server's process; the port stays the same when it is started anew."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.address = Address("127.0.0.1", _free_port())
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    async def start(self) -> None:
        """Until it says that it is ready. Raises BenchError with the end of its log if it does not get there."""
        command = [*self.launch.command, "--port", str(self.address.port)]
        self._process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=os.environ | self.launch.environment,
        )
        await self._ready(self._process)

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(_stop, self._process)

    async def close(self) -> None:
        """For good."""
        await self.stop()
        self._log.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def pids(self) -> list[int]:
        return list(_family(self.pid))

    def forget_peak(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_memory(self) -> int | None:
        """Bytes of resident memory, each process at its own peak; what they share counts for each."""
        peaks = [_peak(pid) for pid in self.pids()]
        known = [peak for peak in peaks if peak is not None]
        return sum(known) if known else None

    async def _ready(self, process: subprocess.Popen[bytes]) -> None:
        name = self.launch.name
        try:
            async with asyncio.timeout(READY_SECONDS):
                while process.poll() is None:
                    with contextlib.suppress(BenchError):
                        await exchange(self.address, "GET", "/health", timeout=5.0)
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise BenchError(f"{name} was not ready in {READY_SECONDS:g} s:\n{_tail(self._log)}") from error
        raise BenchError(f"{name} ended with status {process.returncode}:\n{_tail(self._log)}")


class Pool:
    """The servers that are up: one for all equal launches. A launch that failed is not tried again."""

    def __init__(self) -> None:
        self._up: dict[Launch, tuple[Child, Server]] = {}
        self._failed: dict[Launch, BenchError] = {}

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.keep(())

    async def get(self, launch: Launch) -> Server:
        """Ready and warmed up. Raises BenchError."""
        if launch in self._failed:
            raise self._failed[launch]
        if launch not in self._up:
            tell(f"starting {launch.name}{launch.setting and f' ({launch.setting})'}")
            child = Child(launch)
            try:
                await child.start()
                self._up[launch] = (child, await _warm(child))
            except BaseException as error:
                await child.close()
                if isinstance(error, BenchError):
                    self._failed[launch] = error
                raise
        return self._up[launch][1]

    async def keep(self, launches: Collection[Launch]) -> None:
        """Stops all others."""
        for launch in [launch for launch in self._up if launch not in launches]:
            child, _ = self._up.pop(launch)
            await child.close()


@contextlib.asynccontextmanager
async def running(launch: Launch) -> AsyncIterator[Server]:
    """One server, ready and warmed up. Raises BenchError."""
    async with Pool() as pool:
        yield await pool.get(launch)


async def connect(name: str, address: Address, dialect: Dialect, model: str | None = None) -> Server:
    """A server that runs already; without a name, the first model that it lists. Raises BenchError if there is none."""
    if model is None:
        model = await _first_model(address)
    abilities = Abilities(forget="/flush_cache" if dialect == "sapwood" else None)
    return Server(name, address, dialect, model, abilities=abilities)


async def warm_up(server: Server) -> None:
    """First calls fault in memory, compile for new shapes, and fill caches that have nothing to do with prefixes."""
    prompts = Prompts(0, server.abilities.form)
    await server.ask(Ask(prompts.piece(400, "warm-up"), 8))
    asks = [Ask(prompts.piece(20, "warm-up", i), 4) for i in range(8)]
    await asyncio.gather(*(server.ask(ask) for ask in asks))


async def _warm(child: Child) -> Server:
    launch = child.launch
    model = await _first_model(child.address)
    server = Server(
        launch.name, child.address, launch.dialect, model, child, launch.abilities, launch.setting
    )
    await warm_up(server)
    return server


async def _first_model(address: Address) -> str:
    try:
        answer = await exchange(address, "GET", "/v1/models")
    except StatusError as error:
        hint = "--api-key KEY" if error.status in (401, 403) else "--against-model NAME"
        raise BenchError(f"the server does not list its models: {error}\n\nhint: {hint}") from error
    try:
        listed = json.loads(answer.body).get("data") or []
        return str(listed[0]["id"])
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise BenchError(
            f"the server on port {address.port} lists no model at /v1/models\n\nhint: --against-model NAME"
        ) from error


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _family(pid: int) -> Iterator[int]:
    """The process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in read_text(task).split():
            yield from _family(int(child))


def _peak(pid: int) -> int | None:
    for line in read_text(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-12:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
