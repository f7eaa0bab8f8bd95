"""The second half of a layer: one gated MLP, or a mixture of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sapwood.model.routing import route

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sapwood.model.ops import Activation, Norm, Ops
    from sapwood.model.spec import Experts, ModelSpec

    Rows = NDArray[np.float32]


class Mlp(Protocol):
    def run(self, ops: Ops, x: Rows, norm: Norm | None, gated: Rows, out: Rows, *, accumulate: bool) -> None:
        """out = mlp(norm(x)), added to what is in `out` with `accumulate`.

        `x` and `out` are [rows, hidden_size] and may be one array; `gated` is working space [rows, ffn_size].
        """


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate(x)) * up(x)), its weights packed for the ops."""

    gate: Any
    up: Any
    down: Any
    activation: Activation

    def run(self, ops: Ops, x: Rows, norm: Norm | None, gated: Rows, out: Rows, *, accumulate: bool) -> None:
        ops.gated_linear(x, self.gate, self.up, gated, norm=norm, activation=self.activation)
        ops.linear(gated, self.down, out, accumulate=accumulate)


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Each row runs through the experts that the router chose for it; an expert takes its rows together.

    A row of an expert's product does not depend on its neighbours, and a row's experts are added in ascending
    number, so neither do the bits of the sum depend on what else is in the step.
    """

    router: Any
    experts: Sequence[GatedMlp]
    spec: Experts

    def run(self, ops: Ops, x: Rows, norm: Norm | None, gated: Rows, out: Rows, *, accumulate: bool) -> None:
        if norm is not None:
            x, given = np.empty(x.shape, np.float32), x
            ops.rms_norm(given, norm, x)
        mixed = self._mixed(ops, x, gated)
        out[:] = out + mixed if accumulate else mixed

    def _mixed(self, ops: Ops, x: Rows, gated: Rows) -> Rows:
        scores = np.empty((len(x), self.spec.count), np.float32)
        ops.linear(x, self.router, scores)
        routing = route(scores, self.spec)
        mixed = np.zeros_like(x)
        for expert in np.unique(routing.experts).tolist():
            rows, places = np.nonzero(routing.experts == expert)
            part = np.empty((len(rows), x.shape[1]), np.float32)
            self.experts[expert].run(ops, x[rows], None, gated[: len(rows)], part, accumulate=False)
            mixed[rows] += part * routing.weights[rows, places, None]
        return mixed


def mlp_of(spec: ModelSpec, pack: Callable[[str], Any]) -> Mlp:
    """A layer's MLP from its packed weights by name."""

    def gated(prefix: str = "") -> GatedMlp:
        gate, up, down = (pack(f"{prefix}{part}") for part in ("gate", "up", "down"))
        return GatedMlp(gate, up, down, spec.activation)

    if spec.experts is None:
        return gated()
    experts = tuple(gated(f"experts.{e}.") for e in range(spec.experts.count))
    return MixtureOfExperts(pack("router"), experts, spec.experts)
