from __future__ import annotations

import os
import signal
from threading import Thread
from typing import NoReturn

import pytest

from sapwood.cli.main import main
from sapwood.cli.terminated import Terminated, told_of_termination


def ended() -> NoReturn:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError


def test_sigterm_is_told_as_an_interrupt_is_while_the_verb_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        told_of_termination(ended)()
    assert signal.getsignal(signal.SIGTERM) is before
    assert issubclass(Terminated, KeyboardInterrupt)


def test_in_another_thread_nothing_changes() -> None:
    seen: list[object] = []
    verb = told_of_termination(lambda: seen.append(signal.getsignal(signal.SIGTERM)))
    thread = Thread(target=verb)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_a_plan_that_is_terminated_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sapwood.cli.plan_reproduce.plan_reproduce", lambda *_, **__: ended())
    assert main(["plan", "--reproduce"]) == 143
    assert capsys.readouterr().err == "sapwood: terminated\n"
