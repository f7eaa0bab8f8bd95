"""Where the model will be once it is loaded: the server listens before that and says so."""

from __future__ import annotations

import time

from sapwood.chat.replies import ReplyStore
from sapwood.config import ServerConfig
from sapwood.errors import UnavailableError
from sapwood.server.ledgers import Clock, Ledgers
from sapwood.server.ports import Built
from sapwood.server.room import PromptRoom
from sapwood.server.stepped_clock import SteppedClock
from sapwood.server.tenants import Tenants


class Slot:
    """Holds one built model. Filled once, from any thread.

    Attributes:
        created: when it was filled, in seconds since 1970.
        stopping: whether the server takes nothing new.
        clock: what the promises of the contract ledgers live by.
    """

    def __init__(
        self,
        built: Built | None = None,
        served_name: str | None = None,
        config: ServerConfig | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._built: Built | None = None
        self._room: PromptRoom | None = None
        self._ledgers: Ledgers | None = None
        self._replies: ReplyStore | None = None
        self._served_name = served_name
        self._config = config or ServerConfig()
        self.clock = SteppedClock(clock)
        self._tenants: Tenants | None = None
        self.created = 0
        self.stopping = False
        if built is not None:
            self.fill(built)

    def serve_for(self, tenants: Tenants) -> None:
        """Say, before anyone is served, who is; what they may keep of the pool is set as soon as there is one."""
        self._tenants = tenants
        if self._built is not None:
            tenants.move_into(self._built)

    def fill(self, built: Built) -> None:
        """Raises UsageError, and stops the engine, for tenants that it cannot serve."""
        if self._tenants is not None:
            try:
                self._tenants.move_into(built)
            except BaseException:
                built.loop.shutdown()
                raise
        self.created = int(time.time())
        self._room = PromptRoom(built.tokenizer, built.facts.max_context)
        self._replies = ReplyStore()
        self._ledgers = Ledgers(self._config, built.facts.page_size, self.clock)
        self._built = built

    def shutdown(self, drain: float) -> None:
        """Stop the engine, if there is one yet, giving its requests `drain` seconds to end. Blocks."""
        if self._built is not None:
            self._built.loop.shutdown(drain)

    @property
    def status(self) -> str:
        """`loading`, `ok` or `dead`."""
        if self._built is None:
            return "loading"
        return "ok" if self._built.loop.alive else "dead"

    def get(self) -> Built:
        """The model. Raises UnavailableError while it loads and after its engine died."""
        if self._built is None:
            raise UnavailableError("the model is still loading; try again in a moment")
        if not self._built.loop.alive:
            raise UnavailableError("the engine has stopped; the server must be restarted")
        return self._built

    @property
    def room(self) -> PromptRoom:
        """How long texts may be. Raises UnavailableError while loading."""
        self.get()
        assert self._room is not None, "filled with the model"
        return self._room

    @property
    def ledgers(self) -> Ledgers:
        """What the dialects' rules say is cached. Raises UnavailableError while loading."""
        self.get()
        assert self._ledgers is not None, "filled with the model"
        return self._ledgers

    @property
    def replies(self) -> ReplyStore:
        """What was answered lately. Raises UnavailableError while loading."""
        self.get()
        assert self._replies is not None, "filled with the model"
        return self._replies

    @property
    def name(self) -> str:
        """The name that clients use. Raises UnavailableError while loading."""
        return self._served_name or self.get().facts.model
