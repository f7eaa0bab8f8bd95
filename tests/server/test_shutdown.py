"""SIGTERM in a process of its own: nobody new comes in, running requests end, status 0."""

from __future__ import annotations

import json
import os
import signal
import socket
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


def start(mode: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "server.served_process", mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stream", [True, False])
def test_a_second_signal_waits_for_nobody(number: signal.Signals, stream: bool) -> None:
    process = start("normal", stderr=subprocess.STDOUT)
    try:
        url = ready_url(process)
        body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": stream}
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=30))
        )
        asking.start()
        while 'sapwood_requests_running{model="toy"} 1.0' not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.stdout is not None
        assert "stopping; up to 5 s for running requests (again: at once)" in process.stdout.readline()
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 3  # Five, if it drained.
        asking.join(10)
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert "Traceback" not in output
    (answer,) = answers
    assert answer.status_code == (200 if stream else 503)
    assert (
        "stopp"
        in json.loads(answer.text.strip().split("\n\n")[-1].removeprefix("data: "))["error"]["message"]
    )


def test_a_body_that_is_not_there_is_not_waited_for() -> None:
    process = start("normal")
    try:
        host, port = ready_url(process).removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.3)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert raw.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert process.wait(10) == 0
        assert time.monotonic() - began < 4
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_signal_while_the_model_loads_is_acknowledged() -> None:
    process = start("slow", stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert output.splitlines()[0] == "stopping; the model was still loading"
    assert "Traceback" not in output


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


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_the_host_s_fault(host: str) -> None:
    with pytest.raises(AddressTakenError, match=host) as caught:
        Server(lambda: pytest.fail("must not load"), ServerConfig(host=host, port=0), print)
    assert "--host" in (caught.value.hint or "")


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    first = Server(lambda: pytest.fail("must not load"), ServerConfig(port=0), print)
    port = int(first.url.rsplit(":", 1)[1])
    try:
        with pytest.raises(AddressTakenError, match=str(port)) as caught:
            Server(lambda: pytest.fail("must not load"), ServerConfig(port=port), print)
        assert "--port" in (caught.value.hint or "")
    finally:
        first.close()
