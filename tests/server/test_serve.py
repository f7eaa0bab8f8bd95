"""How a served process listens; how it ends is in test_shutdown.py."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol


def test_what_is_written_leaves_at_once(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Nagle's algorithm a body waits until the client acknowledges the head, which takes it 40 ms."""
    at_once = []
    made = H11Protocol.connection_made

    def connection_made(protocol: H11Protocol, transport: asyncio.Transport) -> None:
        connection = transport.get_extra_info("socket")
        at_once.append(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        made(protocol, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", connection_made)
    with serve() as served:
        assert served.http.get("/health").status_code == 200
    assert at_once == [True]
