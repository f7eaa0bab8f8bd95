"""Reads the results of our own serving bench (`bench/results/serve.json`) as measurements of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sapwood.config import SchedulerConfig
from sapwood.errors import UsageError
from sapwood.sim.fitted import FittedCost, Observation, fit
from sapwood.sim.readers.values import parsed

_MOST_REPEATED = 0.2
"""Decoding of which more repeats what came before ran with guesses: its steps are not known."""


def fit_bench(path: str | Path, scheduler: SchedulerConfig | None = None) -> FittedCost:
    """Raises UsageError for what is no result of the serving bench, or lacks cases."""
    chunk = (scheduler or SchedulerConfig()).chunk_tokens
    try:
        results = parsed(Path(path).read_text(encoding="utf-8"))
        seen = list(observations(results["rows"], chunk))
        name = f"fitted to {Path(path).name} ({results['regime']['model']}, {results['machine']['cpu']})"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        wrong = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"{path} is neither a capture nor a result of `sapwood bench serve`: {wrong}"
        ) from None
    return fit(name, seen, chunk)


def observations(rows: list[Mapping[str, Any]], chunk: int) -> Iterator[Observation]:
    """What the rows say of steps; the client's side (HTTP, text) is part of all times."""
    measured = {(row["scenario"], row["measure"]): (float(row["ours"]), row["regime"]) for row in rows}
    for (scenario, measure), (value, regime) in measured.items():
        prompt = regime.get("prompt_tokens", 0)
        if (scenario, measure) == ("cold_prefill", "prefill"):
            yield Observation.of_prompt("cold prompt", prompt / value, prompt, 0, chunk)
        elif (scenario, measure) == ("exact_repeat", "ttft_warm"):
            yield Observation.of_prompt("cached prompt", value / 1000, prompt, prompt - 1, chunk)
        elif scenario.startswith("decode_") and measure == "decode":
            if measured[scenario, "repetition"][0] <= _MOST_REPEATED:
                steps, beside = regime["max_tokens"] - 1, regime["at_once"]
                yield Observation.of_decoding(scenario, steps * beside / value, prompt, steps, beside)
        elif (scenario, measure) == ("samples", "throughput"):
            samples, each = regime["samples"], regime["max_tokens"]
            reading = Observation.of_prompt("one prompt", 0.0, prompt, 0, chunk)
            drawing = Observation.of_decoding(
                "its samples", samples * each / value, prompt, each - 1, samples
            )
            yield reading + drawing
