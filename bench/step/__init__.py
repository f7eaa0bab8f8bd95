"""The anatomy of a decode step: what is spent in the kernels, and what around them."""

from __future__ import annotations

import argparse


def run_step(options: argparse.Namespace) -> int:
    from .suite import run

    return run(options)
