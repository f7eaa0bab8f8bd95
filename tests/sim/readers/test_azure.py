"""Arrivals and lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.rates import found_unbounded
from sapwood.sim.readers.azure import read_azure
from sapwood.sim.readers.source import Source
from sim.files import text_file

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_lengths_are_kept_and_contents_all_differ(tmp_path: Path) -> None:
    rows = "2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.2500000,64,0\n2023-11-17 00:00:02.0000000,0,9"
    trace = read_azure(Source(text_file(tmp_path / "conv.csv.gz", HEADER + rows)))
    assert trace.arrivals.tolist() == [0.0, 1.75]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([374, 64], [44, 0])
    assert len(set(trace.names.tolist())) == len(trace.names) == 7
    assert found_unbounded(trace).tolist() == [0, 0]
    assert any("all contents differ" in note for note in trace.notes)
    assert any("1 requests without a prompt" in note for note in trace.notes)


@pytest.mark.parametrize("row", ["2023-11-16 18:15:46,374", "soon,374,44", "2023-11-16 18:15:46,-1,44", "a"])
def test_a_line_that_is_none_is_told(row: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"conv\.csv, line 3"):
        read_azure(Source(text_file(tmp_path / "conv.csv", f"{HEADER}2023-11-16 18:15:46,374,44\n{row}\n")))
