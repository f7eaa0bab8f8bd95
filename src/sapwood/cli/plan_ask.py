"""What `sapwood plan TRACE` was asked, and the values of its flags."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sapwood.cli.flags import one_of, whole, words
from sapwood.config import EvictionName, OrderName
from sapwood.errors import UsageError
from sapwood.units import parse_duration, parse_size

if TYPE_CHECKING:
    from sapwood.routing import RouterName
    from sapwood.sim import CostModel, Hardware, ModelShape

CHUNK_TOKENS, MAX_RUNNING = 2048, 256
"""Of a replica's scheduler: accelerators take more at once than the CPUs that `sapwood serve` has its defaults for."""
MODEL, HARDWARE = "llama-3.1-8b", "h100"
"""The defaults: a model whose context is as long as the prompts of today's traces."""
SEEDS = 8
"""Of --reproduce: half a minute on two cores."""
ROUTINGS = ("random", "round-robin", "least-loaded", "session", "prefix")
"""`RouterName`, known before the room of routing is loaded."""
ALL = 10**15
"""Requests: more than a trace has."""

_MOST = 10**15
"""Tokens, or bytes: no cluster has so much memory."""
_THOUSANDS = re.compile(r"\d,0\d\d", re.ASCII)
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kM]?)", re.ASCII)
_TIMES = {"": 1, "k": 10**3, "M": 10**6}.items()
_OF_TOKENS = "tokens, such as 100k or 1M, or memory, such as 16GB or 512MiB"
_OF_BUDGET = "money per hour, such as 20, or memory of all replicas, such as 320GB"


@dataclass(frozen=True, slots=True)
class Amount:
    """Of memory: in tokens of KV, or in bytes."""

    count: float
    bytes: bool = False

    def tokens(self, kv_bytes: float) -> int:
        """Of `kv_bytes` each."""
        return int(self.count / kv_bytes if self.bytes else self.count)


@dataclass(frozen=True, slots=True)
class Budget:
    """One of both: money per hour, or memory of all replicas."""

    price_per_hour: float | None = None
    memory: Amount | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Attributes:
    hardware: of a replica, all its devices together.
    capacities, policies: of the curves; none of them is those that suit the trace.
    page_size, schedule_policy, routing, replicas: held, where they are given.
    timed: so many requests in a row, the busiest, are simulated in time; None is as many as are soon done, 0 none.
    output_tokens, seed, in_a_row: as in `read_trace`.
    full: simulate every row of the curves, and what-ifs without goals.
    command: as it was typed.
    traffic: the plan is for so many times the users of the trace.
    what_ifs: whether they are wanted, and the sensitivity, with goals or `full`.
    served: what is known, and what not, of the server that wrote the trace.
    assumed: flags that nobody gave although `cost` was measured on what they name.
    """

    path: Path
    model: ModelShape
    hardware: Hardware
    cost: CostModel
    capacities: tuple[Amount, ...] = ()
    policies: tuple[EvictionName, ...] = ()
    replicas: int | None = None
    page_size: int | None = None
    schedule_policy: OrderName | None = None
    routing: RouterName | None = None
    chunk_tokens: int = CHUNK_TOKENS
    max_running: int = MAX_RUNNING
    ttft_p95: float | None = None
    hit_rate: float | None = None
    budget: Budget = field(default_factory=Budget)
    limit: int | None = None
    duration: float | None = None
    timed: int | None = None
    output_tokens: int | None = None
    seed: int = 0
    in_a_row: bool = False
    full: bool = False
    workers: int | None = None
    command: str = ""
    ttft_p50: float | None = None
    ttft_p99: float | None = None
    tpot_p95: float | None = None
    traffic: float = 1.0
    what_ifs: bool = True
    served: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError for weights that fill the memory, and for a budget of money without a price."""
        fits, price = self.most_tokens > 0, self.hardware.price_per_hour
        if fits and self.budget.price_per_hour is not None and price is None:
            raise UsageError("a budget of money needs the price of a device", hint="give --price, per hour")

    @property
    def kv_bytes(self) -> float:
        """Of one token."""
        return self.model.kv_bytes_per_token

    @property
    def most_tokens(self) -> int:
        """Of KV that fit into a replica, beside the weights and what is kept back. Raises UsageError if none do."""
        room = self.hardware.usable_bytes - self.model.bytes_of_weights
        if room < self.kv_bytes:
            raise UsageError(
                f"the weights of {self.model.name} take {self.model.bytes_of_weights / 1e9:.0f} GB; "
                f"{self.hardware.name} has {self.hardware.memory_bytes / 1e9:.0f} GB, of which weights and KV may take "
                f"{self.hardware.usable_bytes / 1e9:.0f}",
                hint="take more --devices for a replica, larger --hardware, or --weights that are smaller",
            )
        return int(room / self.kv_bytes)


def amount(flag: str) -> Callable[[str], Amount]:
    """Reads `100k` (tokens) or `16GB` (bytes), never `16G`. What it gives back raises UsageError."""

    def read(value: str) -> Amount:
        if (count := _COUNT.fullmatch(value.strip())) is not None:
            found = Amount(float(count[1]) * dict(_TIMES)[count[2]])
        else:
            found = Amount(bytes_of(flag, value, _OF_TOKENS), bytes=True)
        if found.count < 1:
            raise UsageError(f"{flag} is {value!r}; it must be at least 1")
        if found.count > _MOST:
            raise UsageError(f"{flag} is {value!r}; that is more than there is anywhere")
        return found

    return read


def amounts(flag: str) -> Callable[[Any], tuple[Amount, ...]]:
    """Reads several, with commas between them. What it gives back raises UsageError."""

    def read(value: Any) -> tuple[Amount, ...]:
        text = str(value)
        if _THOUSANDS.search(text):
            raise UsageError(
                f"{flag} is {text!r}; a comma goes between one size and the next",
                hint=f"for one size write {text.replace(',', '')}",
            )
        return tuple(amount(flag)(each) for each in text.split(","))

    return read


def policies_of(flag: str) -> Callable[[Any], tuple[EvictionName, ...]]:
    """Reads several names of eviction policies, or `all`. What it gives back raises UsageError."""
    known = words(EvictionName)

    def read(value: Any) -> tuple[EvictionName, ...]:
        if value == "all":
            return known  # type: ignore[return-value]
        return tuple(dict.fromkeys(one_of(flag, known)(each.strip()) for each in str(value).split(",")))

    return read


def budget_of(flag: str) -> Callable[[Any], Budget]:
    """Reads `20` or `20/h` (money per hour), or `320GB` (KV memory in all). What it gives back raises UsageError."""

    def read(value: Any) -> Budget:
        money = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)(?:/h)?", str(value).strip(), re.ASCII)
        if money is not None:
            return Budget(price_per_hour=float(money[1]))
        return Budget(memory=Amount(bytes_of(flag, str(value), _OF_BUDGET), bytes=True))

    return read


def duration(flag: str) -> Callable[[Any], float]:
    """Reads `5s`, `500ms` or `1h`. What it gives back raises UsageError."""

    def read(value: Any) -> float:
        try:
            return parse_duration(str(value))
        except UsageError as error:
            raise UsageError(f"{flag}: {error.message}") from None

    return read


def share(flag: str) -> Callable[[Any], float]:
    """Reads `0.8` or `80%`. What it gives back raises UsageError."""

    def read(value: Any) -> float:
        text = str(value).strip()
        try:
            rate = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            rate = -1.0
        if not 0 < rate < 1:
            raise UsageError(
                f"{flag} is {value!r}; it must be between 0 and 1", hint="0.8 and 80% are the same"
            )
        return rate

    return read


def timed_of(flag: str) -> Callable[[Any], int]:
    """Reads a number of requests, or `all`. What it gives back raises UsageError."""
    return lambda value: ALL if value == "all" else whole(flag, 0, ALL)(value)


def bytes_of(flag: str, value: str, expected: str) -> int:
    """Reads `64GB`, never `64G`: that may be tokens, or money. Raises UsageError, which says what was expected."""
    try:
        size = parse_size(value)
    except UsageError:
        raise UsageError(f"{flag} is {value!r}; it must be {expected}") from None
    if not value.strip().lower().endswith("b"):
        raise UsageError(
            f"{flag} is {value!r}: of what? It must be {expected}",
            hint=f"if you mean bytes, write {value.strip()}B",
        )
    return size
