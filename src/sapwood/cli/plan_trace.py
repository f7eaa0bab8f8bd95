"""`sapwood plan TRACE`: reads, studies, prints."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sapwood.cli import plan_words as words
from sapwood.cli.plan_ask import Ask
from sapwood.cli.plan_html import as_html
from sapwood.cli.plan_json import as_json
from sapwood.cli.plan_plots import need_matplotlib
from sapwood.cli.plan_progress import waiting
from sapwood.cli.plan_report import Report
from sapwood.cli.plan_study import Study
from sapwood.cli.plan_text import as_text
from sapwood.cli.plan_timed import TimedStudy
from sapwood.cli.plan_tokens import tokenizer_named
from sapwood.cli.talk import Talk
from sapwood.errors import UsageError
from sapwood.sim import Progress, read_trace


def plan_trace(ask: Ask, *, tokenizer: str | None, html: Path | None, as_document: bool) -> bool:
    """The report on stdout, as text or as JSON, and as a page in `html`; whether the goals are met, if there are any.

    Raises UsageError.
    """
    talk = Talk()
    if html is not None:
        _check_place(html)
    with waiting(talk, "reading") as progress:
        report = study(ask, tokenizer, progress, talk.say)
    try:
        # First, as it needs no disk, which may be full by now.
        print(
            json.dumps(as_json(report), indent=1) + "\n" if as_document else as_text(report),
            end="",
            flush=True,
        )
    finally:
        # Whoever reads stdout may have left: the page is wanted all the same.
        if html is not None:
            _write(html, as_html(report))
            talk.say(f"wrote {html}")
    return report.plan is None or report.plan.met


def study(ask: Ask, tokenizer: str | None, progress: Progress, say: Callable[[str], None]) -> Report:
    """Takes as long as curves and simulations need; what is known early is said.

    Raises UsageError.
    """
    tokenize = tokenizer_named(tokenizer, progress)
    progress(f"reading: {ask.path}")
    trace = read_trace(
        ask.path, tokenize=tokenize, output_tokens=ask.output_tokens, seed=ask.seed, in_a_row=ask.in_a_row
    )
    progress(f"counting: {len(trace):,} requests")
    found = Study.of(ask, trace)
    timed = TimedStudy.of(found, progress)
    held = None if timed is None else timed.held()
    if held is not None:
        say(words.held(held, found.machine()))
    report = found.report(progress)
    return report if timed is None else timed.added(report, held)


def _check_place(html: Path) -> None:
    """Before the long work: whether it could be written."""
    need_matplotlib()
    # By `os.path`: those of Path raise, in a folder that one may not look into.
    if os.path.isdir(html) or not os.path.isdir(html.parent):
        wrong = (
            "is a folder" if os.path.isdir(html) else f"cannot be written: there is no folder {html.parent}"
        )
        raise UsageError(f"--html: {html} {wrong}", hint="give the path of a file, such as plan.html")
    if not os.access(html if os.path.exists(html) else html.parent, os.W_OK):
        raise UsageError(f"--html: {html} cannot be written", hint="name one in a folder of your own")


def _write(html: Path, page: str) -> None:
    """All of it, or nothing: then what was there stays. Raises UsageError."""
    place = Path(os.path.realpath(html))
    try:
        if os.access(place.parent, os.W_OK) and (place.is_file() or not place.exists()):
            _put_in_place(place, page)
        else:
            place.write_text(page, encoding="utf-8")  # A pipe, say.
    except OSError as error:
        raise UsageError(f"cannot write {html}: {error.strerror}") from None


def _put_in_place(place: Path, page: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".sapwood-", dir=place.parent) as beside:
        whole = Path(beside) / "page.html"
        whole.write_text(page, encoding="utf-8")
        if place.exists():
            shutil.copymode(place, whole)
        whole.replace(place)
