"""Measured vLLM runs as traces, and what was measured."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.sim import Trace, TraceRequest

DATA = Path(__file__).parent / "data" / "llmservingsim-vllm"
_BLOCK = 16


@dataclass(frozen=True)
class Measured:
    """Means over the requests, in seconds."""

    trace: Trace
    ttft: float
    tpot: float


def measured(hardware: str) -> Measured:
    """The arrival times, as the client noted them, with the contents of the workload."""
    rows = _lines(DATA / f"{hardware}_Llama-3.1-8B" / "requests.jsonl.gz")
    contents = _lines(DATA.parent / "sharegpt-llama-3.1-8b-300.hash16.jsonl.gz")
    first = rows[0]["arrival_time"]
    requests = [
        _request(row["arrival_time"] - first, content, index)
        for index, (row, content) in enumerate(zip(rows, contents, strict=True))
    ]
    ttft = [row["first_token_ts"] - row["queued_ts"] for row in rows]
    tpot = [(row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1) for row in rows]
    return Measured(Trace.of(hardware, _BLOCK, requests), float(np.mean(ttft)), float(np.mean(tpot)))


def _request(arrival: float, content: Mapping[str, Any], index: int) -> TraceRequest:
    names = np.array(content["hash_ids"] + content["output_hash_ids"], np.int32)
    prompt, output = content["input_length"], content["output_length"]
    return TraceRequest(arrival, prompt, output, names, min(len(names) * _BLOCK, prompt + output), index)


def _lines(path: Path) -> Sequence[Mapping[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]
