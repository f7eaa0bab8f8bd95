"""The linear kernels built for the least of machines and for this one: one source, the same bits."""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src" / "sapwood" / "model" / "kernels"
NAMES = ("linear", "packed", "arena", "workers", "int_rows", "int_kernels")
FLAGS = ("-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-pthread", f"-I{KERNELS}")
AVX2 = ["-mavx2", "-mfma", "-mf16c"] if platform.machine() in ("x86_64", "AMD64") else ["-O1"]


def hashes(compiler: str, options: list[str], program: Path) -> str:
    sources = [ROOT / "bench" / "kernels" / "variants.cpp", *(KERNELS / f"{name}.cpp" for name in NAMES)]
    subprocess.run([compiler, *FLAGS, *options, *sources, "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_the_kernels_give_one_hash_whatever_they_are_built_for(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: neither c++ nor g++ is on the path")
    with ThreadPoolExecutor(2) as builds:
        plain = builds.submit(hashes, compiler, [], tmp_path / "plain")
        ours = builds.submit(hashes, compiler, AVX2, tmp_path / "ours")
    assert len(set(plain.result().splitlines())) == 18
    assert plain.result() == ours.result()
