"""Where times come from, by name: the formula, or a file that says what was measured."""

from __future__ import annotations

from pathlib import Path

from sapwood.errors import UsageError
from sapwood.sim.bench_fit import fit_bench
from sapwood.sim.cost import CostModel
from sapwood.sim.fitted import FittedCost, Observation, fit
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import Hardware
from sapwood.sim.model_shape import ModelShape
from sapwood.sim.profile import LayerProfile, ProfileCost, is_profile
from sapwood.sim.readers.capture import read_capture
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import setup_of, simulate_again

FORMULA = "formula"


def cost_from(source: str, model: ModelShape, hardware: Hardware) -> CostModel:
    """Raises UsageError.

    Args:
        source: `formula`, which model and hardware are for; what the three files of a layer profile share; the results
            of our serving bench; or a capture, whose steps are fitted. Measurements are of one model and machine, and
            it is the caller's to name the same.
    """
    if source == FORMULA:
        return FlopCost(model, hardware)
    if is_profile(source):
        return ProfileCost(LayerProfile.read(source), model.layers)
    path = Path(source)
    if not path.is_file():
        raise UsageError(
            f"times cannot come from {source}: there is no such file",
            hint=f"{FORMULA}; a capture; results of sapwood bench serve --out; or what the files of a layer profile share",
        )
    if path.suffix == ".json":
        return fit_bench(path)
    return fit_capture(path)


def fit_capture(path: Path) -> FittedCost:
    """The steps of the captured runs, simulated again to know what each computed. Raises UsageError."""
    seen: list[Observation] = []
    chunk = 0
    for run in read_capture(Source(path)):
        again = simulate_again(run)
        pairs = zip(again.shapes, again.run_seconds, strict=True)
        seen += [Observation.of_step(shape, seconds) for shape, seconds in pairs]
        chunk = max(chunk, setup_of(run).scheduler.chunk_tokens)
    return fit(f"fitted to {path.name}", seen, chunk)
