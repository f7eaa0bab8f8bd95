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
        mbu: share of the bandwidth that reading weights and KV reaches, 0 to 1. Layers of Llama 3.1 8B measured under
            vLLM reach 0.77 to 0.89 of an RTX 4090's, by batch, and 0.68 to 0.75 of an RTX PRO 6000's.
    """

    name: str
    peak_flops: float
    bandwidth: float
    memory_bytes: float
    mfu: float = 0.5
    price_per_hour: float | None = None
    memory_utilization: float = 0.9
    devices: int = 1
    mbu: float = 0.8

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
        if not 0 < self.mbu <= 1:
            raise UsageError(
                f"hardware {self.name} has an MBU of {self.mbu:g}; it must be more than 0 and at most 1"
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
    def bytes_per_second(self) -> float:
        """Reached."""
        return self.bandwidth * self.mbu

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
            Hardware("h100-nvl", 835e12, 3.9e12, 94e9),
            Hardware("h100-pcie", 756e12, 2.0e12, 80e9),
            Hardware("h20", 148e12, 4.0e12, 96e9),
            Hardware("h200", 989e12, 4.8e12, 141e9),
            Hardware("b200", 2250e12, 8.0e12, 180e9),
            Hardware("a100", 312e12, 2.04e12, 80e9),
            Hardware("a100-40gb", 312e12, 1.555e12, 40e9),
            Hardware("a10", 125e12, 0.6e12, 24e9),
            Hardware("l40", 181e12, 0.864e12, 48e9),
            Hardware("l40s", 362e12, 0.864e12, 48e9),
            Hardware("l4", 121e12, 0.3e12, 24e9),
            Hardware("rtx-3090", 71e12, 0.936e12, 24e9),
            Hardware("rtx-4090", 165.2e12, 1.008e12, 24e9),
            Hardware("rtx-5090", 209.5e12, 1.792e12, 32e9),
            Hardware("rtx-a6000", 154.8e12, 0.768e12, 48e9),
            Hardware("rtx-6000-ada", 364.2e12, 0.96e12, 48e9),
            Hardware("rtx-pro-6000", 503.8e12, 1.792e12, 96e9),
            Hardware("mi300x", 1307e12, 5.3e12, 192e9),
            Hardware("mi325x", 1307e12, 6.0e12, 256e9),
        )
    }
)
"""Dense BF16 (summed in FP32) and memory, as the vendors' data sheets have them; SXM where nothing else is said, and of
the RTX PRO 6000 Blackwell the workstation's."""


def hardware_named(name: str) -> Hardware:
    """Of a known name, in any case. Raises UsageError."""
    if (found := KNOWN_HARDWARE.get(name.lower())) is None:
        raise UsageError(f"no hardware is known as {name!r}", hint=f"known: {', '.join(KNOWN_HARDWARE)}")
    return found
