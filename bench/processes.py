"""Starts and stops the servers that are compared: children of this process on 127.0.0.1, ended by pid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from .asking import Ask, Dialect, Server
from .client import Address, exchange
from .document import shown_argument
from .errors import BenchError, BenchUsageError
from .prompts import Prompts

READY_SECONDS = 180.0
STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A server to start; `--port N` is added to the command."""

    name: str
    dialect: Dialect
    command: tuple[str, ...]

    @property
    def flags(self) -> str:
        """What it was started with, without what is only true on this machine."""
        return " ".join(shown_argument(word) for word in self.command[1:])


def launch_ours(model: str, threads: int, extra: Sequence[str] = ()) -> Launch:
    flags = ("--threads", str(threads), "--kv-memory", "1GiB", *extra)
    return Launch("sapwood", "sapwood", (sys.executable, "-m", "sapwood", "serve", model, *flags))


def launch_llama(
    binary: Path, model: Path, threads: int, slots: int, context: int, extra: Sequence[str] = ()
) -> Launch:
    """`context` is per slot. Whatever is not named here keeps the server's own default."""
    flags = ["--threads", str(threads), "--threads-batch", str(threads), "--parallel", str(slots)]
    flags += ["--ctx-size", str(slots * context), "--host", "127.0.0.1", "--no-webui", *extra]
    return Launch("llama.cpp", "llama.cpp", (str(binary), "--model", str(model), *flags))


def find_llama_server(named: str | None) -> Path | None:
    """From the flag, else `LLAMA_SERVER`, else `PATH`. Raises BenchUsageError where a name leads nowhere."""
    wanted = named or os.environ.get("LLAMA_SERVER")
    found = shutil.which(wanted or "llama-server")
    if wanted and not found:
        raise BenchUsageError(f"{wanted!r} is no program; expected the path of llama.cpp's llama-server")
    return Path(found).resolve() if found else None


def llama_version(binary: Path) -> str:
    """What the binary says of itself, such as `version: 4719 (d7b31a9d)`."""
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("version")]
    return lines[0] if lines else "unknown"


@contextlib.asynccontextmanager
async def running(launch: Launch) -> AsyncIterator[Server]:
    """The server, ready and warmed up. Raises BenchError with the end of its log if it does not get there."""
    address = Address("127.0.0.1", _free_port())
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*launch.command, "--port", str(address.port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            await _ready(launch, process, address, log)
            server = replace(await connect(launch.name, address, launch.dialect), pid=process.pid)
            await warm_up(server)
            yield server
        finally:
            await asyncio.to_thread(_stop, process)


async def connect(name: str, address: Address, dialect: Dialect) -> Server:
    """A server that runs already; takes the first model that it lists. Raises BenchError if it lists none."""
    answer = await exchange(address, "GET", "/v1/models")
    listed = json.loads(answer.body).get("data") or []
    if not listed:
        raise BenchError(f"the server on port {address.port} lists no model at /v1/models")
    return Server(name, address, dialect, str(listed[0]["id"]))


async def warm_up(server: Server) -> None:
    """First calls fault in memory and fill caches that have nothing to do with prefixes."""
    await server.ask(Ask(Prompts(0).ids(256, "warm-up"), 16))


async def _ready(launch: Launch, process: subprocess.Popen[bytes], address: Address, log: IO[bytes]) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while process.poll() is None:
                with contextlib.suppress(BenchError):
                    await exchange(address, "GET", "/health", timeout=5.0)
                    return
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise BenchError(f"{launch.name} was not ready in {READY_SECONDS:g} s:\n{_tail(log)}") from error
    raise BenchError(f"{launch.name} ended with status {process.returncode}:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-12:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
