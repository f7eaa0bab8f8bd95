from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import openai
import pytest

from sapwood.config import ServerConfig
from sapwood.server import Server
from sapwood.server.ledgers import Clock as LedgerClock
from server.fakes import TEMPLATE, FakeBuilt, FakeFacts, build_fake


class Served:
    """A running server over a fake model, and clients for it."""

    def __init__(self, server: Server, built: FakeBuilt) -> None:
        self.url, self.built = server.url, built
        self.http = httpx.Client(base_url=server.url, timeout=30)
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30)

    def script(self, text: bytes | None) -> None:
        """What the model says from now on."""
        self.built.runner.script = text

    def close(self) -> None:
        self.http.close()
        self.openai.close()


@dataclass
class Clock:
    """Seconds, stepped by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def serving(
    facts: FakeFacts | None = None,
    clock: LedgerClock = time.monotonic,
    *,
    template: str = TEMPLATE,
    **settings: object,
) -> Iterator[Served]:
    """Serve a fake model in a thread, over a real socket; promises of the contract ledgers live by `clock`."""
    with serving_built(build_fake(facts, template=template), clock, **settings) as served:
        yield served


@contextmanager
def serving_built(
    built: FakeBuilt, clock: LedgerClock = time.monotonic, **settings: object
) -> Iterator[Served]:
    """The same for one that is built."""
    ready = threading.Event()
    config = ServerConfig(port=0, **settings)  # type: ignore[arg-type]
    server = Server(lambda: built, config, lambda _line: ready.set(), clock)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(10)
        served = Served(server, built)
        yield served
        served.close()
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def shared() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Served:
    """The shared server, without a script and with nothing in its cache."""
    shared.script(None)
    assert shared.http.post("/flush_cache").status_code == 200
    return shared


@pytest.fixture
def serve() -> Callable[..., object]:
    """Makes a server of its own."""
    return serving


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def contracted(clock: Clock) -> Iterator[Served]:
    with serving(clock=clock, ledger="contract") as served:
        yield served


@pytest.fixture
def fresh(contracted: Served, clock: Clock) -> Served:
    """Under `--ledger contract`; nothing in the cache, and every promise expired."""
    clock.now += 10_000_000.0
    assert contracted.http.post("/flush_cache").status_code == 200
    contracted.script(b"ok")
    return contracted
