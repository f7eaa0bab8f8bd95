"""Who is asking: the tenant whose prefixes a request may share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Attributes:
    tenant: its name; "" where no tenants are configured.
    operator: whether it may flush, pin and see everything.
    """

    tenant: str = ""
    operator: bool = True
