"""Routes that vLLM's users ask of a server. Its completions are OpenAI's, its `/server_info` is with SGLang's."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import __version__
from sapwood.server.slot import Slot


class VllmRoutes:
    """The handlers, bound to one slot."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def routes(self) -> list[Route]:
        return [
            Route("/reset_prefix_cache", self.reset_prefix_cache, methods=["POST"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/load", self.load, methods=["GET"]),
        ]

    async def reset_prefix_cache(self, _request: HttpRequest) -> Response:
        """Running requests end, and match no more; so it succeeds also while there are some."""
        await self._slot.get().loop.flush()
        return JSONResponse({"success": True})

    async def version(self, _request: HttpRequest) -> Response:
        return JSONResponse({"version": __version__})

    async def load(self, _request: HttpRequest) -> Response:
        stats = self._slot.get().loop.stats()
        return JSONResponse({"server_load": stats.running + stats.waiting})
