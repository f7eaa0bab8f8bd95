"""Kernels alone: our native ops, BLAS through torch and numpy, and what the machine can do at all.

Later also the ladders: a reference, then rungs, each checked against its twin; winners go into the package.
"""

from __future__ import annotations

from .run import run_kernels

__all__ = ["run_kernels"]
