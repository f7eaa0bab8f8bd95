"""The served process that clients of other releases talk to, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from server.conftest import Served, serving
from server.fakes import FakeFacts

Environment = Literal["new", "old", "frameworks"]
TESTS = Path(__file__).parent.parent
DAY = 24 * 3600.0
LONGEST_PLAY = 120.0
"""Seconds after which a client that hangs is ended."""
TENANTS = """
[[tenant]]
name = "one"
key = "sk-one"
[[tenant]]
name = "two"
key = "sk-two"
[[tenant]]
name = "ops"
key = "sk-ops"
operator = true
"""
ROOMY = FakeFacts(max_context=8_000, capacity_pages=12_288, kv_memory=12_288 * 16)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Told:
    """What the scenes of a script told.

    Attributes:
        version: of the client, as the client says it.
    """

    version: str = ""
    scenes: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, scene: str) -> Any:
        assert scene not in self.failures, self.failures[scene]
        return self.scenes[scene]


class Theatre:
    """A served fake model, under the providers' rules and with a clock of our own."""

    def __init__(self, served: Served, clock: Clock, logs: Path) -> None:
        self._served, self._clock, self._logs = served, clock, logs

    def play(self, script: str, environment: Environment) -> Told:
        """Runs a script of this folder with the clients of an environment."""
        command = [sys.executable, "-m", f"clients.{script}", self._served.url]
        with (self._logs / f"{script}-{environment}").open("w+") as errors:
            process = subprocess.Popen(
                command,
                cwd=TESTS,
                env=_variables(environment),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            hangs = threading.Timer(LONGEST_PLAY, process.kill)
            hangs.start()
            try:
                with process:
                    told = self._listen(process)
            finally:
                hangs.cancel()
            errors.seek(0)
            assert process.returncode == 0, errors.read()[-4000:]
        return told

    def _listen(self, process: subprocess.Popen[str]) -> Told:
        assert process.stdin is not None
        assert process.stdout is not None
        told = Told()
        for line in process.stdout:
            self._do(json.loads(line), told)
            process.stdin.write("done\n")
            process.stdin.flush()
        return told

    def _do(self, line: dict[str, Any], told: Told) -> None:
        match line:
            case {"version": version}:
                told.version = version
            case {"begin": _}:
                self._clear()
            case {"say": text}:
                self._served.script(text.encode())
            case {"wait": seconds}:
                self._clock.now += seconds
            case {"scene": scene, "told": result}:
                told.scenes[scene] = result
            case {"scene": scene, "failed": trace}:
                told.failures[scene] = trace
            case _:
                raise AssertionError(f"a script says {line}")

    def _clear(self) -> None:
        """Nothing is cached, and all that was promised has expired."""
        self._clock.now += 30 * DAY
        self._served.script(b"ok")
        flushed = self._served.http.post("/flush_cache", headers={"authorization": "Bearer sk-ops"})
        assert flushed.status_code == 200


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    folder, clock = tmp_path_factory.mktemp("clients"), Clock()
    keys = folder / "tenants.toml"
    keys.write_text(TENANTS)
    with serving(ROOMY, clock, ledger="contract", api_keys=keys) as served:
        yield Theatre(served, clock, folder)


def _variables(environment: Environment) -> dict[str, str]:
    """Variables of a client's process: its own releases come first, and none talks to anyone but the server."""
    path = [str(TESTS)]
    if environment != "new":
        folder = Path(sys.prefix) / "clients" / environment
        if not (folder / ".ready").exists():
            pytest.fail(f"the clients in {folder} are missing: `make test` installs them", pytrace=False)
        path.insert(0, str(folder))
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "PYTHONPATH": os.pathsep.join(path),
        "NO_PROXY": "*",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
    }
