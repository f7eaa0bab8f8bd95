"""What a machine can do in a second, and what it holds: the vendor's figures, and the share of them that is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sapwood.errors import UsageError


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a replica runs on: an accelerator, a machine, or several taken as one (`spanning`).

    Raises UsageError for what cannot be.

    Attributes:
        name: for people.
        peak_flops: dense, in the type that the weights are multiplied in; per second.
        bandwidth: bytes per second between its memory and its arithmetic.
        memory_bytes: all that it has.
        mfu: share of the peak that reading a prompt reaches, 0 to 1.
        price_per_hour: of all of it, in whatever currency; None where nobody said.
        memory_utilization: share of the memory that weights and KV may take, 0 to 1; the rest is kept back for
            activations and the runtime, as vLLM's `gpu_memory_utilization` does.
        devices: how many it is.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory_bytes: float
    mfu: float = 0.5
    price_per_hour: float | None = None
    memory_utilization: float = 0.9
    devices: int = 1

    def __post_init__(self) -> None:
        if min(self.peak_flops, self.bandwidth, self.memory_bytes) <= 0 or not 0 < self.mfu <= 1:
            raise UsageError(
                f"hardware {self.name} has {self.peak_flops:g} FLOP/s, {self.bandwidth:g} bytes/s, "
                f"{self.memory_bytes:g} bytes and an MFU of {self.mfu:g}; more than 0, and an MFU of 1 at most, "
                "were expected"
            )
        if not 0 < self.memory_utilization <= 1:
            raise UsageError(
                f"hardware {self.name} has a memory utilization of {self.memory_utilization:g}; it must be more than 0 "
                "and at most 1"
            )
        if self.devices < 1:
            raise UsageError(f"hardware {self.name} is {self.devices} devices; it must be at least 1")
        if self.price_per_hour is not None and self.price_per_hour < 0:
            raise UsageError(f"hardware {self.name} costs {self.price_per_hour:g} an hour")

    @property
    def flops(self) -> float:
        """Reached per second."""
        return self.peak_flops * self.mfu

    @property
    def usable_bytes(self) -> float:
        """For weights and KV together."""
        return self.memory_bytes * self.memory_utilization


def spanning(device: Hardware, devices: int) -> Hardware:
    """So many of a kind as one, as if there were no network between them: each figure so many times, the price too.

    Shares stay as they are.
    """
    if devices == 1:
        return device
    return replace(
        device,
        name=f"{devices} × {device.name}",
        peak_flops=device.peak_flops * devices,
        bandwidth=device.bandwidth * devices,
        memory_bytes=device.memory_bytes * devices,
        price_per_hour=None if device.price_per_hour is None else device.price_per_hour * devices,
        devices=device.devices * devices,
    )


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
