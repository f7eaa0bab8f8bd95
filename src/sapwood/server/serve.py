"""A served process: listens at once, loads the model meanwhile, drains on SIGTERM and ends with status 0."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from sapwood.config import ServerConfig
from sapwood.errors import SapwoodError
from sapwood.server.app import create_app
from sapwood.server.ledgers import Clock
from sapwood.server.ports import Built
from sapwood.server.slot import Slot

DRAIN_SECONDS = 5.0
"""How long running requests may go on after SIGTERM."""

LAST_WORD_SECONDS = 0.5
"""Time to tell the clients, once the engine was stopped by a second signal."""


class AddressTakenError(SapwoodError):
    """Something else listens there, or the address is not ours."""


class Server:
    """One server process. `load` builds the model; `say` takes the line for the operator once it is ready.
    `clock` is what the promises of the contract ledgers live by, in seconds.

    Attributes:
        url: where it listens, from the moment it is made. Raises AddressTakenError then, and UsageError for
            a tenants file that cannot be used.
    """

    def __init__(
        self,
        load: Callable[[], Built],
        config: ServerConfig,
        say: Callable[[str], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._load, self._say = load, say
        self._slot = Slot(None, config.served_model_name, config, clock)
        self._failure: BaseException | None = None
        app = create_app(self._slot, config)  # First, for it may refuse a file that the config names.
        self._listener = _bind(config.host, config.port)
        self.url = _url(config.host, self._listener.getsockname()[1])
        self._loader = threading.Thread(target=self._load_into_slot, name="sapwood-load", daemon=True)
        # Loading starts once signals are ours: "ready" is never said by a process that cannot end well yet.
        self._web = _Uvicorn(_settings(app), self._slot, self._loader.start, say)

    def run(self) -> None:
        """Serve until SIGTERM, Ctrl-C or `stop`. Raises what loading raised."""
        with contextlib.closing(self._listener):
            self._web.run(sockets=[self._listener])
        if self._loader.ident is not None:
            self._loader.join(DRAIN_SECONDS)
        self._slot.shutdown(0.0)
        if self._failure is not None:
            raise self._failure

    @property
    def stopping(self) -> bool:
        """Whether `run` is about to end; a `load` that still goes on may give up by raising anything."""
        return self._web.should_exit

    def stop(self) -> None:
        """End `run`, as SIGTERM does. From any thread."""
        self._web.should_exit = True

    def close(self) -> None:
        """Give the address back without having run."""
        self._listener.close()

    def _load_into_slot(self) -> None:
        try:
            self._slot.fill(self._load())
        except BaseException as error:
            if not self.stopping:
                self._failure = error
                self.stop()
            return
        self._say(f"Sapwood serves {self._slot.name} at {self.url} (OpenAI clients: {self.url}/v1)")


class _Uvicorn(uvicorn.Server):
    """Ends normally after a signal, and tells the engine to drain as soon as nobody new is let in.

    At a second signal the engine stops at once, and everyone who waits for an answer is told so.
    """

    def __init__(
        self, config: uvicorn.Config, slot: Slot, when_up: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._slot, self._when_up, self._say = slot, when_up, say
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_up()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._signals:
            self._say(
                "stopping; the model was still loading"
                if self._slot.status == "loading"
                else f"stopping; up to {DRAIN_SECONDS:.0f} s for running requests (again: at once)"
            )
        self._slot.stopping = True
        draining = asyncio.create_task(asyncio.to_thread(self._slot.shutdown, DRAIN_SECONDS))
        hurrying = asyncio.create_task(self._hurry())
        await super().shutdown(sockets)
        await draining
        hurrying.cancel()

    async def _hurry(self) -> None:
        """Wait for a second signal, then end without waiting for anyone."""
        while self._signals < 2:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._slot.shutdown, 0.0)
        await asyncio.sleep(LAST_WORD_SECONDS)
        self.force_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The original raises the signal again at the end, and the exit status would be the signal's.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Nothing is written here: what the signal interrupts may be writing.
        self._signals += 1
        self.should_exit = True


def _settings(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",  # Where a library for them is installed, an upgrade that no route takes would be waited for.
        server_header=False,
        # Longer than the engine drains: whoever is cut off then still gets told why.
        timeout_graceful_shutdown=int(DRAIN_SECONDS) + 2,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, for asyncio sets TCP_NODELAY on that alone: else an answer waits 40 ms for its head to be acknowledged.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise AddressTakenError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint=f"choose another with {'--host' if elsewhere else '--port'}",
        ) from None
    listener.listen(1024)
    return listener


def _url(host: str, port: int) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"
