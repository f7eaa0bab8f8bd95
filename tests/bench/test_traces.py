"""The traces that come along, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.errors import BenchError
from bench.traces import BUNDLED, load_trace


def test_the_bundled_traces_are_what_their_readme_says() -> None:
    conversation, synthetic = (load_trace(file) for file in BUNDLED)
    assert (conversation.name, synthetic.name) == ("conversation", "synthetic")
    assert (len(conversation), len(synthetic)) == (12_031, 3_993)
    assert conversation.unit_tokens == 512
    assert len(conversation.names) == 288_500
    assert len(np.unique(conversation.names)) == 182_790
    assert conversation.prompt_tokens.sum() == 144_793_823
    assert conversation.arrivals[-1] < 3600


@pytest.mark.parametrize("text", ["", "no trace\n", '{"timestamp": 1}\n'])
def test_a_file_that_is_no_trace_is_an_error_of_the_bench(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(text)
    with pytest.raises(BenchError, match="mine"):
        load_trace(file)
    with pytest.raises(BenchError):
        load_trace(tmp_path / "none.jsonl")
