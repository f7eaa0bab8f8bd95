"""HTTP: the provider routes and our own, over one engine."""

from __future__ import annotations

from sapwood.server.app import create_app
from sapwood.server.serve import AddressTakenError, Server
from sapwood.server.slot import Slot

__all__ = ["AddressTakenError", "Server", "Slot", "create_app"]
