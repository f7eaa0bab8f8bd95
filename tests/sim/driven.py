"""The engine's own loop, turned by hand and by a clock of the test's, so that what it captures can be planned."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.rig import Rig
from sapwood.config import CacheConfig, IndexName, OrderName, SchedulerConfig, SpeculateName
from sapwood.engine import Capture, Engine, EngineLoop
from sapwood.engine.commands import Abort, Add, Call
from sapwood.engine.mailbox import Mail
from sapwood.errors import ContextLengthError, NotFoundError, RequestError, UnavailableError
from sapwood.sim.readers.capture import CapturedRun, read_capture
from sapwood.sim.readers.source import Source
from sapwood.types import Request, SamplingParams, Scope


@dataclass(frozen=True)
class Made:
    """How the engine is set up."""

    pool: int = 512
    page_size: int = 1
    chunk: int = 48
    max_running: int = 3
    policy: OrderName = "default"
    index: IndexName = "radix"
    speculate: SpeculateName = "off"
    context: int = 256
    eos: tuple[int, ...] = (3, 7)

    def rig(self) -> Rig:
        return Rig(
            self.pool,
            page_size=self.page_size,
            chunk=self.chunk,
            max_running=self.max_running,
            policy=self.policy,
            index=self.index,
            speculate=self.speculate,
            context=self.context,
            eos=self.eos,
        )

    @property
    def header(self) -> Mapping[str, Any]:
        scheduler = SchedulerConfig(
            self.chunk, self.max_running, schedule_policy=self.policy, speculate=self.speculate
        )
        cache = CacheConfig(page_size=self.page_size, prefix_index=self.index)
        return {
            "capacity_pages": self.pool // self.page_size,
            "context": self.context,
            "eos": self.eos,
            "fingerprint": "fake",
            "cache": asdict(cache),
            "scheduler": asdict(scheduler),
        }


class Lines:
    """Of a capture."""

    lost = 0

    def __init__(self) -> None:
        self.rows: list[str] = []

    def write(self, line: Mapping[str, Any]) -> None:
        self.rows.append(json.dumps(line))


class Client:
    """Where the events of a request go."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.mails: list[Mail] = []
        self.gone = False

    def put(self, mail: Mail) -> bool:
        self.mails.append(mail)
        return not self.gone


class Driven:
    """A loop whose thread is the test's. Each look at its clock takes a while."""

    def __init__(self, made: Made, pin_tokens: int = 0) -> None:
        self.rig, self.lines = made.rig(), Lines()
        self.rig.engine.pins.budget = pin_tokens
        self.clients: list[Client] = []
        ticks = itertools.count(40.0, 0.375)
        self._clock: Callable[[], float] = lambda: next(ticks)
        self._made = made
        self.loop = EngineLoop(self.rig.engine, clock=self._clock, capture=Capture(self.lines, made.header))
        self.loop._capture.begin(self._clock(), 1.7e9)

    def ask(
        self, prompt: tuple[int, ...], params: SamplingParams, scope: Scope | None = None, **others: Any
    ) -> None:
        request = Request(f"r{len(self.clients)}", prompt, params, scope or Scope(), **others)
        try:
            admission = self.rig.engine.limits.admit(request)
        except ContextLengthError:
            return
        self.clients.append(Client(request))
        self.loop._obey_one(Add(admission, self.clients[-1], self._clock()))

    def leave(self, number: int) -> None:
        """Whoever asked that goes, and says so."""
        client = self.clients[number % len(self.clients)]
        self.loop._obey_one(Abort(client.request.id, client))

    def vanish(self, number: int) -> None:
        """Whoever asked that goes, which is found out when there is something for them."""
        self.clients[number % len(self.clients)].gone = True

    def call(self, function: Callable[[Engine], Any]) -> None:
        """What is refused is no matter here."""
        answer: Future[Any] = Future()
        self.loop._obey_one(Call(function, answer))
        error = answer.exception(0)
        if error is not None and not isinstance(error, RequestError | UnavailableError | NotFoundError):
            raise error

    def pin(self, name: str, prompt: tuple[int, ...], scope: Scope) -> None:
        self.call(lambda engine: engine.pin(name, scope, prompt, self._clock()))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop._step()

    def until_idle(self) -> None:
        for _ in range(2000):
            if not self.rig.engine.busy:
                return
            self.loop._step()
        raise AssertionError("still busy")

    def end(self, folder: Path) -> CapturedRun:
        """Whoever still waits is sent away."""
        self.loop._close(UnavailableError("it stops"))
        path = folder / "run.jsonl"
        path.write_text("\n".join(self.lines.rows) + "\n")
        return read_capture(Source(path))[-1]
