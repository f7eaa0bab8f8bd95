"""What a machine can do in a second, and what it holds: the vendor's figures, and the share of them that is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sapwood.errors import UsageError


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator, or one machine taken as one. Raises UsageError for what cannot be.

    Attributes:
        name: for people.
        peak_flops: dense, in the type that the weights are multiplied in; per second.
        bandwidth: bytes per second between its memory and its arithmetic.
        memory_bytes: for weights and KV together.
        mfu: share of the peak that reading a prompt reaches, 0 to 1.
        price_per_hour: in whatever currency; None where nobody said.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory_bytes: float
    mfu: float = 0.5
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        if min(self.peak_flops, self.bandwidth, self.memory_bytes) <= 0 or not 0 < self.mfu <= 1:
            raise UsageError(
                f"hardware {self.name} has {self.peak_flops:g} FLOP/s, {self.bandwidth:g} bytes/s, "
                f"{self.memory_bytes:g} bytes and an MFU of {self.mfu:g}; more than 0, and an MFU of 1 at most, "
                "were expected"
            )
        if self.price_per_hour is not None and self.price_per_hour < 0:
            raise UsageError(f"hardware {self.name} costs {self.price_per_hour:g} an hour")

    @property
    def flops(self) -> float:
        """Reached per second."""
        return self.peak_flops * self.mfu


KNOWN_HARDWARE: Mapping[str, Hardware] = MappingProxyType(
    {
        each.name: each
        for each in (
            Hardware("h100", 989e12, 3.35e12, 80e9),
            Hardware("h200", 989e12, 4.8e12, 141e9),
            Hardware("b200", 2250e12, 8.0e12, 180e9),
            Hardware("a100", 312e12, 2.04e12, 80e9),
            Hardware("l40s", 362e12, 0.864e12, 48e9),
            Hardware("l4", 121e12, 0.3e12, 24e9),
            Hardware("mi300x", 1307e12, 5.3e12, 192e9),
        )
    }
)
"""Dense BF16 and memory, as the vendors' data sheets have them (SXM where there is a choice)."""


def hardware_named(name: str) -> Hardware:
    """Of a known name, in any case. Raises UsageError."""
    if (found := KNOWN_HARDWARE.get(name.lower())) is None:
        raise UsageError(f"no hardware is known as {name!r}", hint=f"known: {', '.join(KNOWN_HARDWARE)}")
    return found
