"""`bench kernels`: in a process of its own whose BLAS has not been told which kernel to use."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping

from ..document import Output, emit, make_document
from ..errors import BenchError
from ..noise import Moment


def run_kernels(options: argparse.Namespace) -> int:
    """A BLAS reads its variables once, as numpy is imported; hence a second process where they are wrong."""
    wanted = blas_environment(os.environ, options.threads)
    if wanted != dict(os.environ):
        package = __package__.rpartition(".")[0]
        again = [*options.given, "--called-as", json.dumps(options.typed)]
        done = subprocess.run([sys.executable, "-m", package, *again], env=wanted, check=False)
        return done.returncode
    return _measure(options)


def blas_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """`environment` with the default BLAS kernels and that many threads, and this process's module path."""
    wanted = {name: value for name, value in environment.items() if name != "OPENBLAS_CORETYPE"}
    counts = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    wanted["PYTHONPATH"] = environment.get("PYTHONPATH") or os.pathsep.join(path for path in sys.path if path)
    return wanted | counts


def _measure(options: argparse.Namespace) -> int:
    from sapwood.errors import SapwoodError
    from sapwood.model.ops_native import NativeOps

    from . import attention, linear
    from .blas import load_torch
    from .floors import measure_floors, rows_of

    before = Moment.now()
    try:
        ops = NativeOps(options.threads)
    except (ImportError, SapwoodError) as error:
        raise BenchError(f"the native ops cannot run here: {error}") from error
    torch = load_torch(options.threads)
    floors = measure_floors(ops, torch, options.size)
    rows = list(rows_of(floors))
    if options.only != "attention":
        rows += linear.rows(ops, torch, floors, options.size)
    if options.only != "linear":
        rows += attention.rows(ops, torch, floors, options.size)
    regime = {
        "suite": "kernels",
        "size": options.size,
        "threads": options.threads,
        "weights": "streamed from memory in turn, as a decode step does",
        "timing": "ours and BLAS in one process, in turns; ratios per round",
        "blas": "the better of torch (MKL) and numpy (OpenBLAS, its default kernel)"
        if torch
        else "numpy alone",
    }
    emit(make_document(regime, rows, before, options.typed), Output(options.out, options.json))
    return 0
