"""The plots of a plan, as SVG whose colours are the page's own (CSS variables): light and dark in one file."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sapwood.cli import plan_words as words
from sapwood.cli.plan_report import Line, Report
from sapwood.errors import UsageError
from sapwood.sim import Outcome

APART = 3.9
"""Sizes that are named on the axis are so many times as large as the one before, at least."""
INK, SOFT, RULE, OPTIMUM, PAGE = "#010203", "#020304", "#030405", "#040506", "#0d0e0f"
LINES = ("#050607", "#060708", "#070809", "#08090a", "#090a0b", "#0a0b0c", "#0b0c0d", "#0c0d0e")
_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        INK: "ink",
        SOFT: "soft",
        RULE: "rule",
        OPTIMUM: "optimum",
        PAGE: "page",
        **{color: f"line{k}" for k, color in enumerate(LINES)},
    }
)
"""Stand-ins while drawing, and the variables that take their place."""
_STYLE: Mapping[str, Any] = MappingProxyType(
    {
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": SOFT,
        "axes.edgecolor": RULE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": SOFT,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "ytick.color": SOFT,
        "grid.color": RULE,
        "grid.linewidth": 0.6,
        "axes.grid": True,
        "axes.axisbelow": True,
    }
)


def curve_plot(report: Report) -> str:
    """Hit rate over memory, all policies, with the optimum above, the knees and the plan's own size."""
    return _svg("curve", (6.4, 4.4), lambda axes: _curve(axes, report))


def ttft_plot(outcomes: Mapping[str, Outcome], goal: float | None) -> str:
    """Which share of the requests had their first token after how many seconds."""
    return _svg("ttft", (6.4, 3.8), lambda axes: _ttft(axes, outcomes, goal))


def _curve(axes: Any, report: Report) -> None:
    machine, curves = report.machine, report.curves
    if curves.optimum is not None:
        size, rate = _xy(report, curves.optimum)
        top = [100 * report.traffic.ceiling] * len(rate)
        axes.fill_between(size, rate, top, color=OPTIMUM, alpha=0.12, linewidth=0)
        axes.plot(size, rate, color=OPTIMUM, linestyle="--", linewidth=1.5, label="optimum (clairvoyant)")
    for k, line in enumerate(curves.lines):
        wide = 2.4 if k == 0 else 1.3
        axes.plot(
            *_xy(report, line), color=LINES[k % len(LINES)], linewidth=wide, label=line.policy, zorder=9 - k
        )
    for knee in curves.knees:
        at = machine.gigabytes(knee.capacity_tokens), 100 * knee.hit_rate
        axes.plot(*at, "o", color=LINES[0], markersize=8, zorder=20)
        _note(axes, f"knee: {words.gigabytes(at[0])}, {at[1]:.1f} %", at, (12, -30))
    if report.basis is not None:
        total = machine.gigabytes(report.basis.design.total_tokens)
        axes.axvline(total, color=INK, linewidth=1, linestyle=":")
        _note(axes, "plan" if report.plan else "as it is", (total, 4), (4, 0))
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xticks(_apart(_xy(report, curves.lines[0])[0]))
    axes.xaxis.set_major_formatter(lambda value, _: words.gigabytes(value))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    axes.set_xlabel("KV memory, all replicas together")
    axes.set_ylabel("prompt tokens reused")
    _legend(axes)


def _xy(report: Report, line: Line) -> tuple[list[float], list[float]]:
    sizes = [report.machine.gigabytes(point.capacity_tokens) for point in line.points]
    return sizes, [100 * point.hit_rate for point in line.points]


def _apart(sizes: Sequence[float]) -> list[float]:
    """Those of which the names do not run into each other."""
    kept: list[float] = []
    for size in sizes:
        if not kept or size >= APART * kept[-1]:
            kept.append(size)
    return kept


def _ttft(axes: Any, outcomes: Mapping[str, Outcome], goal: float | None) -> None:
    for k, (name, outcome) in enumerate(outcomes.items()):
        shares = [share for share, value in enumerate(outcome.ttfts) if 0 < value < float("inf")]
        times = [outcome.ttfts[share] for share in shares]
        axes.plot(times, shares, color=LINES[k % len(LINES)], linewidth=2.4 if k == 0 else 1.3, label=name)
    axes.axhline(95, color=SOFT, linewidth=0.8, linestyle=":")
    if goal is not None:
        axes.axvline(goal, color=INK, linewidth=1, linestyle=":")
        _note(axes, f"goal {words.exact_seconds(goal)}", (goal, 4), (4, 0))
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axes.xaxis.set_major_formatter(lambda value, _: words.seconds(value))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    axes.set_xlabel("time to first token")
    axes.set_ylabel("requests answered within")
    _legend(axes)


def _note(axes: Any, text: str, at: tuple[float, float], away: tuple[float, float]) -> None:
    """Beside a place in the data, `away` points from it, readable over lines."""
    box = {"facecolor": PAGE, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    axes.annotate(text, at, xytext=away, textcoords="offset points", fontsize=9, zorder=20, bbox=box)


def _legend(axes: Any) -> None:
    handles = sorted(axes.get_lines(), key=lambda line: -float(line.get_linewidth()))
    named = [line for line in handles if not line.get_label().startswith("_")]
    axes.figure.legend(handles=named, frameon=False, loc="outside lower center", ncols=3, fontsize=9)


def _svg(name: str, inches: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """`name` keeps the ids of one plot apart from those of another. Raises UsageError where matplotlib is missing."""
    matplotlib: Any = _library("matplotlib")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = _library("matplotlib.figure").Figure(figsize=inches, layout="constrained")
        draw(figure.subplots())
        written = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    return _themed(written.getvalue())


def need_matplotlib() -> None:
    """Raises UsageError where it is not installed."""
    _library("matplotlib")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError("the plots need matplotlib", hint="pip install 'sapwood[plots]'") from None


def _themed(svg: str) -> str:
    """From `<svg` on, with the page's colours and font, scaled to its width, without ids that nothing refers to."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = svg.replace("'DejaVu Sans'", "system-ui, sans-serif")
    for color, name in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg.strip()
