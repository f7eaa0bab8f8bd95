"""A route that lets the contract ledgers' time pass, for those who try out what expires. Only where it is asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood.chat import read_json
from sapwood.chat.body import Body, Number, read_body
from sapwood.server.body import read_limited
from sapwood.server.slot import Slot


class _Step(Body):
    advance: Annotated[Number, Field(gt=0)]


class ClockRoutes:
    """The handler, bound to one slot."""

    def __init__(self, slot: Slot, max_body_bytes: int) -> None:
        self._slot, self._max_body_bytes = slot, max_body_bytes

    def routes(self) -> list[Route]:
        return [Route("/v1/ledgers/clock", self.advance, methods=["POST"])]

    async def advance(self, request: Request) -> Response:
        body = await read_limited(request, self._max_body_bytes, lambda: self._slot.stopping)
        step = read_body(_Step, read_json(body), {})
        return JSONResponse({"ahead_seconds": self._slot.clock.advance(step.advance)})
