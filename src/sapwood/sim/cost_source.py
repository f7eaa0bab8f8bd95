"""Where times come from, by name: the formula, or a file that says what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sapwood.errors import UsageError
from sapwood.sim.bench_fit import fit_bench
from sapwood.sim.cost import CostModel
from sapwood.sim.fitted import FittedCost, Observation, fit
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import Hardware
from sapwood.sim.model_shape import ModelShape
from sapwood.sim.profile import LayerProfile, ProfileCost, is_profile, profiles_in
from sapwood.sim.readers.capture import CapturedRun, is_capture, read_capture
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import setup_of, simulate_again
from sapwood.sim.roofline import RooflineCost

FORMULA, TEXT = "formula", "text"


def cost_from(source: str, model: ModelShape, hardware: Hardware) -> CostModel:
    """Raises UsageError.

    Args:
        source: `formula`, the roofline of `model` on `hardware`; `text`, the source text's formula; what the
            three files of a layer profile share; the results of our serving bench; or a capture, whose steps are
            fitted. What a file is, is told by what is in it. Measurements are of one model and machine, and it is the
            caller's to name the same.
    """
    if source == FORMULA:
        return RooflineCost(model, hardware)
    if source == TEXT:
        return FlopCost(model, hardware)
    if is_profile(source):
        return ProfileCost(LayerProfile.read(source), model.layers)
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"times cannot come from {source}: {_lacking(path)}", hint=_hint(path))
    return fit_capture(path) if is_capture(Source(path)) else fit_bench(path)


def _lacking(path: Path) -> str:
    return "it is a folder" if path.is_dir() else "there is no such file"


def _hint(path: Path) -> str:
    """Names the profiles of a folder, or of the one that a file would lie in."""
    if prefixes := profiles_in(path if path.is_dir() else path.parent):
        return f"the profiles that lie there: {', '.join(prefixes)}"
    return (
        f"{FORMULA}; a capture; results of sapwood bench serve --out; or what the files of a profile share: "
        "h100_llama of h100_llama_dense.csv, h100_llama_attention.csv and h100_llama_per_sequence.csv"
    )


def fit_capture(path: Path) -> FittedCost:
    """The steps of the captured runs, simulated again to know what each computed.

    Runs that cannot be simulated are left out, and the name says so. Raises UsageError if none can, or if they are not
    of one model.
    """
    runs = read_capture(Source(path))
    usable: list[CapturedRun] = []
    seen: list[Observation] = []
    reason: UsageError | None = None
    for run in runs:
        try:
            again = simulate_again(run)
        except UsageError as error:
            reason = reason or error
            continue
        usable.append(run)
        pairs = zip(again.shapes, again.run_seconds, strict=True)
        seen += [Observation.of_step(shape, seconds) for shape, seconds in pairs]
    if not usable:
        assert reason is not None
        raise UsageError(f"no times can be taken from {path}: {reason.message}", hint=reason.hint)
    _expect_one_model(path, usable)
    chunk = max(setup_of(run).scheduler.chunk_tokens for run in usable)
    part = f", {len(usable)} of {len(runs)} runs" if len(usable) < len(runs) else ""
    return fit(f"fitted to {path.name}{part}", seen, chunk)


def _expect_one_model(path: Path, runs: Sequence[CapturedRun]) -> None:
    models = {str(run.header.fields.get("fingerprint")): run.header.fields.get("model") for run in runs}
    if len(models) > 1:
        raise UsageError(
            f"{path} holds runs of several models: {', '.join(map(str, models.values()))}",
            hint="capture each into a file of its own",
        )
