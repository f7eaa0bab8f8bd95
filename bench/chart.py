"""One chart: ours against the best of its peers, scenario by scenario. An SVG by hand, for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

SHOWN: Mapping[tuple[str, str], str] = {
    ("cold_prefill", "prefill"): "cold prompt, 2,000 tokens",
    ("exact_repeat", "ttft_warm"): "same prompt, first token",
    ("decode_1", "decode"): "decoding, 1 stream",
    ("decode_8", "decode"): "decoding, 8 streams",
    ("shared_system", "throughput"): "shared system prompt",
    ("multi_turn", "throughput"): "chat",
    ("multi_turn", "ttft_p95"): "chat, first token (p95)",
    ("documents", "throughput"): "questions on documents",
    ("samples", "throughput"): "16 samples of a prompt",
    ("starved_chat", "throughput"): "chat in little memory",
}
"""Which measures, in which order, and what they are called."""

_LABELS, _BARS, _RIGHT = 215, 395, 170
_TOP, _ROW, _BOTTOM = 52, 26, 30

_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .soft { fill: #57606a; font-size: 12px }
  .better { fill: #1a7f37 } .worse { fill: #bf8700 }
  .line { stroke: #57606a; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9198a1 }
    .better { fill: #3fb950 } .worse { fill: #d29922 } .line { stroke: #9198a1 }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """Attributes:
    times: how many times as fast as the best peer ours is; below 1 it is slower.
    """

    label: str
    times: float
    peer: str


def bars(rows: Sequence[Mapping[str, Any]]) -> Sequence[Bar]:
    """Of rows as `Row.json` gives them; those without a ratio are left out."""
    found = {(row["scenario"], row["measure"]): row for row in rows if row["ratio"]}
    return [_bar(label, found[key]) for key, label in SHOWN.items() if key in found]


def _bar(label: str, row: Mapping[str, Any]) -> Bar:
    ratio = float(row["ratio"])
    return Bar(label, ratio if row["better"] == "higher" else 1 / ratio, str(row["against"]))


def draw(shown: Sequence[Bar]) -> str:
    """The SVG's text; its longest bar fills the width."""
    width, height = _LABELS + _BARS + _RIGHT, _TOP + _ROW * len(shown) + _BOTTOM
    scale = _BARS / max(1.0, *(bar.times for bar in shown))
    one = _LABELS + scale
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="Sapwood against the best of its peers">',
        f"<style>{_STYLE}</style>",
        '<text class="title" x="8" y="20">Sapwood against the fastest of its peers</text>',
        '<text class="soft" x="8" y="38">times as fast as the best one in each scenario; longer is better</text>',
    ]
    for number, bar in enumerate(shown):
        lines += _row(bar, _TOP + number * _ROW, scale)
    bottom = _TOP + _ROW * len(shown)
    lines += [
        f'<line class="line" x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 4}" y2="{bottom + 4}"/>',
        f'<text class="soft" x="{one:.1f}" y="{bottom + 20}" text-anchor="middle">as fast as the best peer</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(bar: Bar, top: int, scale: float) -> list[str]:
    long = bar.times * scale
    side = "better" if bar.times >= 1 else "worse"
    base, after = top + 16, _LABELS + max(long, scale) + 8  # never on the line at 1
    return [
        f'<text x="{_LABELS - 10}" y="{base}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect class="{side}" x="{_LABELS}" y="{top + 3}" width="{long:.1f}" height="18" rx="2"/>',
        f'<text x="{after:.1f}" y="{base}">{bar.times:.1f}×'
        f'<tspan class="soft" dx="6">{escape(bar.peer)}</tspan></text>',
    ]
