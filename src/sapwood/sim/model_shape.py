"""What a model costs to read and to remember: the few numbers of its shape that matter for that."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.errors import UsageError


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of weights, scales included.

    Attributes:
        format: of most of them, for people.
        all: of all.
        looked_up: of tables of which a step reads the rows of its tokens alone.
        experts: of experts, of which a step reads those that its tokens choose.
    """

    format: str
    all: float
    looked_up: float = 0.0
    experts: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Layers that look at the last tokens alone."""

    layers: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Raises UsageError for what cannot be.

    Attributes:
        name: for people.
        parameters: of all weights.
        layers, heads, kv_heads, head_dim: of its attention.
        kv_element_bytes: of one number in a page, what scales it included.
        active_parameters: of one token's way, its row of the embedding and the output layer included; None where it
            is all (no experts).
        output_parameters: of the output layer, which is multiplied with what is drawn from.
        tied: whether the output layer is the embedding's table, so that it is there once.
        chosen_experts: share of a layer's experts that one token is multiplied with.
        stored: its weights; None is two bytes a parameter.
        window: None where every layer looks at all tokens.
        kv_numbers: kept of a token in a layer; None is a key and a value of each KV head.
        pair_flops: operations in a layer for a token and one that it looks at; None is 4 heads · head_dim.
        notes: what of it is counted otherwise than it is, for people.
        context: longest sequence that it reads; None where nobody said.
    """

    name: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_element_bytes: float = 2.0
    active_parameters: int | None = None
    output_parameters: int = 0
    tied: bool = True
    chosen_experts: float = 1.0
    stored: Stored | None = None
    window: Window | None = None
    kv_numbers: int | None = None
    pair_flops: int | None = None
    notes: tuple[str, ...] = field(default=())
    context: int | None = None

    def __post_init__(self) -> None:
        whole = (
            *(self.parameters, self.layers, self.heads, self.kv_heads, self.head_dim, self.active, self.body),
            *(1 if each is None else each for each in (self.context, self.kv_numbers, self.pair_flops)),
        )
        if (
            min(whole) < 1
            or min(self.kv_element_bytes, self.bytes_of_weights) <= 0
            or self.active > self.parameters
            or not 0 < self.chosen_experts <= 1
            or not self._has_window
        ):
            raise UsageError(
                f"no model has the shape of {self.name}: {self.layers} layers, {self.heads} heads, {self.kv_heads} KV "
                f"heads of {self.head_dim} numbers, {self.parameters:,} parameters, {self.active:,} of them active"
            )

    @property
    def _has_window(self) -> bool:
        """Or has none, as most."""
        return self.window is None or (1 <= self.window.layers <= self.layers and self.window.tokens >= 1)

    @property
    def active(self) -> int:
        """Parameters of one token's way, the embedding and the output layer included."""
        return self.parameters if self.active_parameters is None else self.active_parameters

    @property
    def body(self) -> int:
        """Parameters that every token is multiplied with: neither the embedding nor the output layer."""
        return self.active - self.output_parameters * (1 if self.tied else 2)

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token in all layers, those with a window too."""
        numbers = 2 * self.kv_heads * self.head_dim if self.kv_numbers is None else self.kv_numbers
        return self.layers * numbers * self.kv_element_bytes

    @property
    def bytes_of_weights(self) -> float:
        return 2.0 * self.parameters if self.stored is None else self.stored.all

    def weights_read(self, tokens: int) -> float:
        """Bytes of weights that a step of so many tokens reads, each expert chosen as often as any other."""
        if self.stored is None:
            return self.bytes_of_weights - (0 if self.tied else 2.0 * self.output_parameters)
        idle = (1 - self.chosen_experts) ** tokens
        return self.stored.all - self.stored.looked_up - self.stored.experts * idle
