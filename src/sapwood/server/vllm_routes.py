"""Routes that vLLM's users ask of a server. Its completions are OpenAI's, its `/server_info` is with SGLang's."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.errors import RequestError
from sapwood.server.slot import Slot

_FLAGS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n"})
"""As vLLM's web framework reads them."""


class VllmRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def routes(self) -> list[Route]:
        return [
            Route("/reset_prefix_cache", self.reset_prefix_cache, methods=["POST"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/load", self.load, methods=["GET"]),
            Route("/ping", self.ping, methods=["GET", "POST"]),
        ]

    async def reset_prefix_cache(self, request: HttpRequest) -> Response:
        """Running requests end, and match no more: it succeeds also while there are some, and stops none.

        So what vLLM's parameters ask for is done anyway; they are only looked at.
        """
        for name in ("reset_running_requests", "reset_external"):
            value = request.query_params.get(name, "false")
            if value.lower() not in _FLAGS:
                raise RequestError(f"{name!r} is {value[:40]!r}; it must be true or false", param=name)
        await self._slot.get().loop.flush()
        return JSONResponse({"success": True})

    async def ping(self, _request: HttpRequest) -> Response:
        """As `/health`, without words."""
        return Response(status_code=200 if self._slot.status == "ok" else 503)

    async def version(self, _request: HttpRequest) -> Response:
        return JSONResponse({"version": __version__})

    async def load(self, _request: HttpRequest) -> Response:
        stats = self._slot.get().loop.stats()
        return JSONResponse({"server_load": stats.running + stats.waiting})
