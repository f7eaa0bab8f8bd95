"""SIGTERM in a process of its own: nobody new comes in, running requests end, status 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sapwood.config import ServerConfig
from sapwood.server import AddressTakenError, Server

ROOT = Path(__file__).parents[2]


def start(mode: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "server.served_process", mode]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    started = start("normal")
    yield started
    if started.poll() is None:
        started.kill()
    started.communicate(timeout=10)


def ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Sapwood serves toy at http://127.0.0.1:")
    return line.split(" at ")[1].split(" ")[0]


def test_sigterm_lets_a_running_stream_end(process: subprocess.Popen[str]) -> None:
    url = ready_url(process)
    body = {"prompt": "a", "max_tokens": 40, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    assert process.wait(10) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_stream_that_does_not_end_in_time_is_told(process: subprocess.Popen[str]) -> None:
    url = ready_url(process)
    body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert '"error"' in rest[-1]
    assert "stopp" in rest[-1]
    assert process.wait(10) == 0


def test_an_idle_server_ends_at_once(process: subprocess.Popen[str]) -> None:
    ready_url(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 0


def test_a_model_that_cannot_be_loaded_ends_the_process() -> None:
    process = start("broken")
    output, _ = process.communicate(timeout=20)
    assert output == "failed: the file is cut\n"
    assert process.returncode == 1


def test_it_listens_while_the_model_loads() -> None:
    gate = threading.Event()

    def load() -> object:
        gate.wait(10)
        raise RuntimeError("enough seen")

    server = Server(load, ServerConfig(port=0), print)  # type: ignore[arg-type]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 10
    answer = httpx.get(f"{server.url}/health", timeout=10)
    assert (answer.status_code, answer.json()) == (503, {"status": "loading"})
    assert time.monotonic() < deadline
    gate.set()
    thread.join(15)
    assert [str(failure) for failure in failures] == ["enough seen"]


def test_stopping_while_the_model_loads_is_no_failure() -> None:
    asked = threading.Event()

    def load() -> object:
        asked.set()
        while not server.stopping:
            time.sleep(0.01)
        raise RuntimeError("gave up")

    server = Server(load, ServerConfig(port=0), print)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert asked.wait(10)
    server.stop()
    thread.join(15)
    assert not thread.is_alive()


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    first = Server(lambda: pytest.fail("must not load"), ServerConfig(port=0), print)
    port = int(first.url.rsplit(":", 1)[1])
    try:
        with pytest.raises(AddressTakenError, match=str(port)):
            Server(lambda: pytest.fail("must not load"), ServerConfig(port=port), print)
    finally:
        first.close()
