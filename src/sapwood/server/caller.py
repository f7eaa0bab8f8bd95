"""Who is asking: the tenant whose prefixes a request may share."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

CALLER_KEY = "sapwood.caller"
"""Where a request's Caller lies in its ASGI scope, once the door let it in."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Attributes:
    tenant: its name; "" where no tenants are configured.
    operator: whether it may flush, pin and see everything.
    """

    tenant: str = ""
    operator: bool = True


def caller_of(scope: Scope) -> Caller:
    """Raises KeyError for a request that came past the door: nobody is served as an unknown."""
    caller: Caller = scope[CALLER_KEY]
    return caller
