"""Our own captures: `sapwood serve --capture FILE`. `sapwood.engine.capture` says what is in a line.

A file may hold several runs of the server, one after another; `read_capture` gives the runs, and `capture_trace` in
`captured_trace.py` all their requests as one trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from sapwood.errors import UsageError
from sapwood.sim.readers.captured_deeds import CapturedScope, Deed, Left, Place, deed_of
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.trace import Names

VERSION = 1

_CUT = "a line was cut as its writer died, or its disk was full"
_LOOKED_AT = 10
"""Lines, to know a capture: the first may be one that was cut."""


@dataclass(frozen=True, slots=True, eq=False)
class CapturedRequest:
    """A request as it was served. Steps count calls of `Engine.schedule`, times seconds since the run began.

    Attributes:
        row: all that is in its line, but for the tokens.
        step: calls that had been made when it was admitted.
        started_step: the call that began it; None if it never began.
        ended_step: calls that had been made when it ended.
        prompt: int32 [prompt tokens].
        outputs: of each sample the tokens of its answer, int32.
    """

    row: Row
    id: str
    arrival: float
    step: int
    started_step: int | None
    ended_step: int
    prompt: Names
    outputs: tuple[Names, ...]
    reused: int

    @property
    def scope(self) -> CapturedScope:
        return CapturedScope.of(self.row)

    @property
    def finish(self) -> Sequence[Any]:
        """Why each sample ended."""
        finish = self.row.fields.get("finish")
        return finish if isinstance(finish, list) else ()

    @property
    def aborted(self) -> bool:
        return "abort" in self.finish

    @property
    def refused(self) -> bool:
        """Whether there was no room for it; old captures say so only of one that never began."""
        told = self.row.fields
        never = self.started_step is None and told.get("error") is not None
        return not self.aborted and bool(told.get("refused", never))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A call of `schedule`: the time that it was told, and what `apply` was told (None where nothing was to run)."""

    began: float
    ended: float | None


@dataclass(slots=True)
class CapturedRun:
    """One run of the server.

    Attributes:
        header: what was built; see `sapwood.engine.capture`.
        requests: in the order in which they were admitted.
        deeds: what else was done, in that order, aborts among them.
        ended: whether the server stopped in the ordinary way, so that no request is missing that had not ended.
        gaps: why doing it again may not give the same; empty if nothing is missing.
    """

    header: Row
    requests: list[CapturedRequest] = field(default_factory=list)
    steps: list[StepTimes] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    ended: bool = False


def read_capture(source: Source) -> list[CapturedRun]:
    """The runs in a file, the oldest first. A line that was cut as its writer died is left out, and noted.

    Raises UsageError, naming the line at fault.
    """
    runs: list[CapturedRun] = []
    for row in _rows(source):
        if row is None:
            if runs:
                runs[-1].gaps.append(_CUT)
        elif "capture" in row.fields:
            if row.whole("version", 1) != VERSION:
                raise row.fault("version", f"{VERSION}, which is all that this release reads,")
            runs.append(CapturedRun(row))
        elif not runs:
            raise UsageError(f"{row.where} comes before the line that says what was captured")
        else:
            _take(runs[-1], row)
    for run in runs:
        run.requests.sort(key=lambda request: request.row.whole("order", 0))
        orders = [request.row.whole("order", 0) for request in run.requests]
        if orders != [*range(len(orders))]:
            run.gaps.append("requests that had not ended are missing")
    if not runs:
        raise UsageError(f"{source} is empty")
    return runs


def is_capture(source: Source) -> bool:
    """By what is in it. Raises UsageError for a file that cannot be read."""
    return header_of(source) is not None


def header_of(source: Source) -> Row | None:
    """Of the first run of a capture; None for another file. Raises UsageError for one that cannot be read."""
    for line in islice(source.lines(), _LOOKED_AT):
        try:
            row = source.row(line)
        except UsageError:
            continue
        if row.fields.get("capture") == "sapwood":
            return row
    return None


def _rows(source: Source) -> Iterator[Row | None]:
    """None stands for a line that was cut: by the death of its writer, or by a disk that was full for a while.

    Such are the last, or a header or a count of lost lines comes next. Raises UsageError for any other.
    """
    cut: UsageError | None = None
    for line in source.lines():
        try:
            row = source.row(line)
        except UsageError as error:
            cut = cut or error
            continue
        if cut is not None:
            if not {"capture", "lost"} & row.fields.keys():
                raise cut
            yield None
        cut = None
        yield row
    if cut is not None:
        yield None


def _take(run: CapturedRun, row: Row) -> None:
    if (deed := deed_of(row)) is not None:
        run.deeds.append(deed)
    elif "request" in row.fields:
        _take_request(run, row)
    elif "steps" in row.fields:
        _take_steps(run, row)
    elif "held" in row.fields:
        run.gaps.append("pins or public prefixes held pages, which is not written down")
    elif "lost" in row.fields:
        run.gaps.append("the disk was too slow or full, and lines are missing")
    elif "end" in row.fields:
        run.ended = True
    elif "limited" in row.fields:
        run.gaps.append("tenants have quotas, which are not written down")


def _take_request(run: CapturedRun, row: Row) -> None:
    request = _request(row)
    run.requests.append(request)
    if request.aborted:
        after = row.whole("ended_after", 0) if "ended_after" in row.fields else None
        run.deeds.append(Left(Place(request.ended_step, after), row.whole("order", 0)))


def _take_steps(run: CapturedRun, row: Row) -> None:
    began, ended = row.array("began"), row.array("ended")
    if row.whole("steps", 0) != len(run.steps):
        run.gaps.append("the clock of some steps is missing")
    if len(began) != len(ended):
        raise row.fault("ended", f"a list of {len(began)}")
    for name, times, may_lack in (("began", began, False), ("ended", ended, True)):
        if not all(_is_time(time) or (may_lack and time is None) for time in times):
            raise row.fault(name, "a list of seconds")
    run.steps += [StepTimes(*each) for each in zip(began, ended, strict=True)]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _request(row: Row) -> CapturedRequest:
    told = {name: value for name, value in row.fields.items() if name not in ("prompt", "outputs")}
    outputs = tuple(row.ids("outputs", output) for output in row.array("outputs"))
    started = None if row.fields.get("started_step") is None else row.whole("started_step", 0)
    return CapturedRequest(
        replace(row, fields=told),
        row.text("request"),
        row.real("arrival"),
        row.whole("step", 0),
        started,
        row.whole("ended_step", 0),
        row.ids("prompt", row.array("prompt")),
        outputs,
        row.whole("reused", 0),
    )
