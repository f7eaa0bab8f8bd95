"""The engine's thread, and how others reach it: commands go in through a queue, events come out in mailboxes.

The thread alone touches the engine. It reads commands between steps, so a request joins, leaves or flushes
within one step's time. Nobody waits for ever: when the thread ends, for whatever reason, everyone still
waiting gets an UnavailableError. The clock of the whole engine is read here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from sapwood.cache import Flushed
from sapwood.engine.capture import Witness
from sapwood.engine.commands import Abort, Add, Call, Command, Stop
from sapwood.engine.engine import Engine
from sapwood.engine.mailbox import AsyncMailbox, BlockingMailbox, Mail, Mailbox, Post, Visit
from sapwood.engine.pinning import PinReport, check_pin, pin_prompt, report
from sapwood.engine.publishing import publish
from sapwood.engine.stats import EngineStats
from sapwood.errors import RequestError, SapwoodError, UnavailableError
from sapwood.types import Delta, Event, Finished, Request

_log = logging.getLogger("sapwood.engine")
_T = TypeVar("_T")

_STALLED_SECONDS = 0.05
"""How long to wait for a command when requests are there but none of them can be run."""

STATS_SECONDS = 0.1
"""How old the counts may get while answers only grow: taking them costs as much as scheduling a step."""


class EngineLoop:
    """Runs an Engine in a thread of its own. Every public method may be called from any thread.

    `clock` gives seconds that only rise; `capture` is told of all that happens.
    """

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float] = time.monotonic, capture: Witness | None = None
    ) -> None:
        self._engine = engine
        self._capture = capture or Witness()
        self._clock = clock
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._mailboxes: dict[str, Mailbox] = {}
        self._posts: dict[asyncio.AbstractEventLoop, Post] = {}
        self._door = threading.Lock()
        self._closed: UnavailableError | None = None
        self._dead = False
        self._deadline: float | None = None
        self._gone: set[str] = set()
        self._stats = engine.stats()
        self._stats_due = 0.0
        self._news = False
        self._thread = threading.Thread(target=self._run, name="sapwood-engine", daemon=True)

    def start(self) -> EngineLoop:
        self._thread.start()
        return self

    @property
    def alive(self) -> bool:
        """Whether requests are being served; false once it was stopped or has died."""
        return self._thread.is_alive() and not self._dead

    @property
    def lost_lines(self) -> int | None:
        """Of the capture, so far; None without one."""
        return self._capture.lost

    def check(self, request: Request) -> None:
        """What `generate` would refuse, but for prompt tokens that the model does not know. Never waits.

        Raises RequestError or UnavailableError.
        """
        self._engine.limits.check(request)
        if self._closed is not None:
            raise _again(self._closed)

    def stats(self) -> EngineStats:
        """As of the end of a step: of the last one in which a request began or ended, or a later one. Never waits.

        While answers only grow they are at most STATS_SECONDS and a step old.
        """
        return self._stats

    async def generate(self, request: Request) -> AsyncIterator[Event]:
        """The request's events up to its `Finished`. Closing the iterator or cancelling its task aborts it.

        Raises RequestError if it cannot be served, UnavailableError if the engine is stopping or died.
        """
        mailbox = AsyncMailbox(self._post_to(asyncio.get_running_loop()))
        with self._visit(request, mailbox) as visit:
            while not visit.over:
                for event in visit.open(await mailbox.get()):
                    yield event

    def generate_blocking(self, request: Request) -> Iterator[Event]:
        """The same for a caller without an event loop; closing the iterator aborts the request."""
        mailbox = BlockingMailbox()
        with self._visit(request, mailbox) as visit:
            while not visit.over:
                yield from visit.open(mailbox.get())

    def call(self, function: Callable[[Engine], _T]) -> Future[_T]:
        """Run a function of the engine in its thread, between steps. Raises UnavailableError when gone."""
        answer: Future[_T] = Future()
        self._send(Call(function, answer))
        return answer

    async def flush(self) -> Flushed:
        return await asyncio.wrap_future(self.call(Engine.flush))

    def flush_blocking(self) -> Flushed:
        return self.call(Engine.flush).result()

    def check_pin(self, request: Request) -> None:
        """What `pin` would refuse by the prompt's length alone. Never waits. Raises as `check`."""
        check_pin(self._engine, len(request.prompt))
        self.check(request)

    async def pin(self, pin_id: str, request: Request) -> PinReport:
        """Keep a prompt's whole pages until `unpin`; `request`, of no new tokens, computes what is missing.

        Raises RequestError (`pin_budget_exceeded` over the budget), UnavailableError if others evict it faster
        than it can be pinned. Holds nothing then, nor if the task is cancelled.
        """
        self.check_pin(request)
        await asyncio.wrap_future(self.call(lambda engine: engine.pins.check_id(pin_id)))
        return await pin_prompt(self, pin_id, request, self._clock)

    async def unpin(self, pin_id: str) -> PinReport:
        """Raises NotFoundError."""
        return await asyncio.wrap_future(self.call(lambda e: report(e, e.pins.unpin(pin_id))))

    async def pins(self) -> PinReport:
        return await asyncio.wrap_future(self.call(lambda e: report(e, *e.pins.all())))

    def limit(self, most_tokens: Mapping[str, int]) -> None:
        """Say before the first request how many tokens some tenants may keep; see `PrefixCache.limit`. Blocks."""
        self.call(lambda engine: self._limit(engine, most_tokens)).result()

    def publish(self, prefixes: Mapping[str, tuple[int, ...]]) -> None:
        """Compute prompts, by name, for all tenants to read, before the first request. Blocks. Raises UsageError."""
        publish(self, self._engine, prefixes)

    def shutdown(self, drain: float = 0.0) -> None:
        """Take no more requests, give those that run `drain` seconds to end, stop the rest, join the thread.

        Those that are stopped get an UnavailableError. Blocks; a second call may shorten the time, never
        lengthen it, and waits too.
        """
        with self._door:
            if self._closed is None:
                self._closed = UnavailableError("the engine is stopping; it takes no new requests")
            if not self._dead:
                self._commands.put(Stop(drain))
        if self._thread.ident is None:
            self._close(self._closed)  # It was never started: nobody else would tell those who wait.
        elif self._thread is not threading.current_thread():
            self._thread.join()

    # ---- callers' side -----------------------------------------------------------------------------------

    @contextmanager
    def _visit(self, request: Request, mailbox: Mailbox) -> Iterator[Visit]:
        """Submit a request; whoever leaves before its end has aborted it."""
        # Checked here, in the caller's thread and at once, not only after the running step.
        self._send(Add(self._engine.limits.admit(request), mailbox, self._clock()))
        visit = Visit()
        try:
            yield visit
        except SapwoodError:
            visit.over = True  # The engine's last word.
            raise
        finally:
            if not visit.over:
                self._cancel(request, mailbox)

    def _post_to(self, loop: asyncio.AbstractEventLoop) -> Post:
        """One for all requests of an event loop; those of loops that are closed are forgotten."""
        with self._door:
            post = self._posts.get(loop)
            if post is None:
                self._posts = {each: at for each, at in self._posts.items() if not each.is_closed()}
                post = self._posts[loop] = Post(loop)
            return post

    def _send(self, command: Command) -> None:
        with self._door:
            if self._closed is not None:
                raise _again(self._closed)
            self._commands.put(command)

    def _cancel(self, request: Request, mailbox: Mailbox) -> None:
        with self._door:
            if not self._dead:
                self._commands.put(Abort(request.id, mailbox))

    # ---- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        reason = UnavailableError("the engine has stopped")
        self._capture.begin(self._clock(), time.time())
        try:
            while not self._must_stop():
                stalled = not self._step()
                self._obey(stalled)
                if not self._engine.busy:
                    self._stats = self._engine.stats()
        except BaseException as error:
            _log.critical("the engine thread died", exc_info=error)
            reason = UnavailableError(
                f"the engine died: {type(error).__name__}: {error}",
                hint="restart the server; its log has the trace",
            )
        finally:
            self._close(reason)

    def _must_stop(self) -> bool:
        return self._deadline is not None and (not self._engine.busy or self._clock() >= self._deadline)

    def _step(self) -> bool:
        """One step, if there is anything to do. False when nothing came of it."""
        if not self._engine.busy:
            return False
        began = self._clock()
        self._capture.scheduling(began)
        scheduled = self._engine.schedule(began)
        if scheduled.plan is None:
            self._publish(scheduled.events)
            return bool(scheduled.events)
        self._news |= bool(scheduled.events)
        self._deliver(scheduled.events)
        planned = self._clock()
        result = self._engine.run(scheduled.plan)
        ran = self._clock()
        self._capture.applying(ran)
        events = self._engine.apply(result, ran)
        applied = self._clock()
        for part, seconds in (
            ("schedule", planned - began),
            ("run", ran - planned),
            ("apply", applied - ran),
        ):
            self._engine.tally.step[part].observe(seconds)
        only_longer = all(isinstance(event, Delta) and event.finish is None for event in events)
        if self._news or applied >= self._stats_due or not only_longer:
            self._stats_due, self._news = applied + STATS_SECONDS, False
            self._publish(events)
        else:
            self._hand_out(events)
        return True

    def _publish(self, events: list[Event]) -> None:
        """The counts before the events: whoever has an answer finds it counted. Called between steps."""
        self._stats = self._engine.stats()
        self._hand_out(events)

    def _hand_out(self, events: list[Event]) -> None:
        """Called between steps: whoever turns out to be gone is aborted."""
        self._deliver(events)
        if self._gone:
            self._abort_gone()

    def _abort_gone(self) -> None:
        for request_id in self._gone:
            del self._mailboxes[request_id]
            self._capture_end(self._engine.abort(request_id))
        self._gone.clear()
        self._stats = self._engine.stats()

    def _obey(self, stalled: bool) -> None:
        """Carry out the commands that are there; wait for one only if nothing else is to be done."""
        try:
            if stalled:
                self._obey_one(self._commands.get(timeout=_STALLED_SECONDS if self._engine.busy else None))
            while True:
                self._obey_one(self._commands.get_nowait())
        except queue.Empty:
            return

    def _obey_one(self, command: Command) -> None:
        self._news = True
        match command:
            case Add():
                self._add(command)
            case Abort(request_id, mailbox):
                self._abort(request_id, mailbox)
            case Call(function, answer):
                self._answer_call(function, answer)
            case Stop(drain):
                deadline = self._clock() + drain
                self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _answer_call(self, function: Callable[[Engine], Any], answer: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            result = function(self._engine)
        except Exception as error:
            self._capture.held(self._engine.pins.take_moves())
            answer.set_exception(error)
        else:
            self._stats = self._engine.stats()  # Before the answer, as in `_publish`.
            self._capture.held(self._engine.pins.take_moves())
            if isinstance(result, Flushed):
                self._capture.flushed(self._clock())
            answer.set_result(result)

    def _limit(self, engine: Engine, most_tokens: Mapping[str, int]) -> None:
        engine.cache.limit(most_tokens)
        self._capture.limits(most_tokens)

    def _capture_end(self, events: list[Event]) -> None:
        """Of a request that nobody waits for any more."""
        self._capture.saw(events, self._clock())

    def _add(self, command: Add) -> None:
        admission, mailbox = command.admission, command.mailbox
        try:
            self._engine.admit(admission, now := self._clock())
        except RequestError as error:
            mailbox.put(error)
        except Exception as error:
            # A fault of ours, met by one request: that one is told, and nothing of it stays.
            _log.exception("request %s could not be admitted", admission.request.id)
            self._engine.abort(admission.request.id)
            mailbox.put(UnavailableError(f"the request could not be taken: {type(error).__name__}: {error}"))
        else:
            self._capture.admitted(admission.request, command.sent, now)
            self._mailboxes[admission.request.id] = mailbox

    def _abort(self, request_id: str, mailbox: Mailbox) -> None:
        # By mailbox too: a refused request may bear the id of one that runs.
        if self._mailboxes.get(request_id) is mailbox:
            events = self._engine.abort(request_id)
            self._capture_end(events)
            self._publish(events)

    def _deliver(self, events: list[Event]) -> None:
        """One piece of mail per request. Who cannot be reached is noted as gone: a plan may be out now."""
        self._capture.saw(events)
        mails: dict[str, list[Event]] = {}
        for event in events:
            mails.setdefault(event.request_id, []).append(event)
        for request_id, mail in mails.items():
            reached = self._mailboxes[request_id].put(mail)
            if isinstance(mail[-1], Finished):
                del self._mailboxes[request_id]
                self._gone.discard(request_id)
            elif not reached:
                self._gone.add(request_id)

    def _close(self, reason: UnavailableError) -> None:
        """Let nobody in any more, and nobody wait."""
        with self._door:
            self._closed = reason
            self._dead = True
        mail: Mail = _again(reason)
        for request_id, mailbox in self._mailboxes.items():
            mailbox.put(mail)
            self._let_go(request_id)
        self._mailboxes.clear()
        self._refuse_rest(reason)
        self._capture.end()

    def _let_go(self, request_id: str) -> None:
        try:
            self._capture_end(self._engine.abort(request_id))
            self._stats = self._engine.stats()
        except Exception:  # A dead engine's books may be broken; that is already reported.
            _log.debug("request %s could not be aborted", request_id, exc_info=True)

    def _refuse_rest(self, reason: UnavailableError) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, Add):
                command.mailbox.put(_again(reason))
            elif isinstance(command, Call) and command.answer.set_running_or_notify_cancel():
                command.answer.set_exception(_again(reason))


def _again(error: UnavailableError) -> UnavailableError:
    """A fresh copy: one exception object raised in several threads would mix their tracebacks."""
    return UnavailableError(error.message, hint=error.hint)
