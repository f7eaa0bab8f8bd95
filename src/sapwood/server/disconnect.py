"""Work that stops when the client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive

from sapwood.server.errors import ClientGoneError


async def unless_gone(receive: Receive, work: Coroutine[object, object, None]) -> None:
    """Run `work` to its end, or cancel it and raise ClientGoneError once the client has hung up.

    The request's body must have been read: after it, all that can still arrive is the disconnect.
    """
    job, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ClientGoneError
        job.result()
    finally:
        job.cancel()
        gone.cancel()
        await asyncio.gather(job, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
