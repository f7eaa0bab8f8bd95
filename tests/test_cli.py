"""The command line in this process, with a fake model behind it; and once as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood
import sapwood.cli.talk
import sapwood.llm
from sapwood.cli import main
from sapwood.errors import ModelError
from server.conftest import Served, serving
from server.fakes import FakeBuilt, build_fake

Out = pytest.CaptureFixture[str]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBuilt:
    """What every model turns out to be."""
    built = build_fake()
    built.runner.script = "Hallo Wörld".encode()

    def build(*configs: Any, progress: Callable[[str], None]) -> FakeBuilt:
        assert configs[0].model in ("smollm2-135m", "other")
        progress("reading weights: 1 of 2")
        progress("reading weights: 2 of 2")
        return built

    monkeypatch.setattr(sapwood.llm, "build_engine", build)
    return built


def lines_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    source = iter(lines)

    def read(*_: object) -> str:
        try:
            return next(source)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)


def test_version(capsys: Out) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{sapwood.__version__}\n"


def test_without_a_verb_the_help_is_talk_and_wrong_usage(capsys: Out) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for verb in ("serve", "run", "chat", "pull"):
        assert verb in captured.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--kv-mem", "1"], "did you mean --kv-memory?"),
        (["serve", "--page_size", "1"], "did you mean --page-size?"),
        (["run", "x", "--maxtokens=3"], "did you mean --max-tokens?"),
        (["chat", "--urls", "x"], "did you mean --url?"),
        (["serf"], "serve"),
        (["serve", "--port", "many"], "--port"),
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--kv-memory", "lots"], "512MiB"),
        (["serve", "--weights", "q5"], "auto, f32, f16, q8, q4"),
        (["serve", "--prefix-index", "radixx"], "did you mean radix?"),
        (["serve", "--page-size", "0"], "between 1 and 256"),
        (["serve", "--chunk-tokens", "0"], "at least 1"),
        (["serve", "--ledger", "contract"], "not there yet"),
        (["serve", "--ledger", "ours"], "physical"),
        (["serve", "--cache-dir", "here"], "none"),
        (["chat", "--url", "ftp://x"], "http://"),
        (["chat", "--url", "http://x", "--threads", "2"], "--threads"),
        (["run"], "PROMPT"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(arguments: list[str], said: str, capsys: Out) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sapwood: ")
    assert said in captured.err


def test_run_streams_the_answer_to_stdout_and_talks_on_stderr(fake: FakeBuilt, capsys: Out) -> None:
    assert main(["run", "hi"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\n"
    assert captured.err == "reading weights\n"
    assert not fake.loop.alive


@pytest.mark.usefixtures("fake")
def test_run_formats_the_prompt_unless_raw(capsys: Out) -> None:
    assert main(["run", "hi", "--json"]) == 0
    formatted = json.loads(capsys.readouterr().out)
    assert formatted["text"] == "Hallo Wörld"
    assert formatted["finish_reason"] == "stop"
    assert formatted["reused_tokens"] == 0
    assert formatted["completion_tokens"] == len("Hallo Wörld".encode()) + 1
    assert formatted["prompt_tokens"] > len("hi")


@pytest.mark.usefixtures("fake")
def test_run_raw_cut_short(capsys: Out) -> None:
    assert main(["run", "hi", "--raw", "--json", "--max-tokens", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["prompt_tokens"], report["text"], report["finish_reason"]) == (2, "Hal", "length")


@pytest.mark.usefixtures("fake")
def test_a_request_that_cannot_be_served_is_1(capsys: Out) -> None:
    assert main(["run", "x" * 5000]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4096" in captured.err
    assert "hint:" in captured.err


def test_a_model_that_cannot_be_loaded_is_1(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    def build(*_: Any, **__: Any) -> FakeBuilt:
        raise ModelError("the file is cut at tensor blk.3", hint="fetch it again")

    monkeypatch.setattr(sapwood.llm, "build_engine", build)
    assert main(["run", "hi"]) == 1
    assert capsys.readouterr().err == "sapwood: the file is cut at tensor blk.3\n\nhint: fetch it again\n"


@pytest.mark.usefixtures("fake")
def test_chat_keeps_history_and_says_what_was_reused(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    lines_in(monkeypatch, "hi", "again")
    assert main(["chat", "other", "--system", "Be kind."]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\nHallo Wörld\n"
    first, second = [line.split() for line in captured.err.splitlines() if line.startswith("reused")]
    assert first[1] == "0"
    # All of the first turn's prompt, and its answer but for the end token that the template writes otherwise.
    assert int(second[1]) == int(first[3]) + len("Hallo Wörld".encode())
    assert int(second[3]) > int(second[1])


@pytest.mark.usefixtures("fake")
def test_a_turn_that_does_not_fit_leaves_the_conversation_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lines_in(monkeypatch, "hi", "x" * 5000, "again", "")
    assert main(["chat"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\nHallo Wörld\n"
    assert "4096" in captured.err


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_chat_with_a_server(
    server: Served, suffix: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    server.script("Grüße 🌲".encode())
    lines_in(monkeypatch, "hi", "again")
    assert main(["chat", "--url", server.url + suffix]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Grüße 🌲\nGrüße 🌲\n"
    turns = [line for line in captured.err.splitlines() if line.startswith("reused")]
    assert len(turns) == 2
    assert turns[0].startswith("reused 0 of ")


def test_a_server_that_refuses_or_is_not_there(
    server: Served, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lines_in(monkeypatch, "hi")
    assert main(["chat", "wrong", "--url", server.url]) == 1
    assert "'wrong' is not served here" in capsys.readouterr().err
    assert main(["chat", "--url", "http://127.0.0.1:9"]) == 1
    assert "is the server running?" in capsys.readouterr().err


def test_pull_prints_the_path_alone(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert main(["pull", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert main(["pull", "smollm2-135"]) in (1, 2)
    assert "smollm2-135m" in capsys.readouterr().err


def test_as_a_process() -> None:
    command = [sys.executable, "-m", "sapwood", "serve", "--kv-mem", "1GiB"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1] / "src"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean --kv-memory?" in done.stderr
