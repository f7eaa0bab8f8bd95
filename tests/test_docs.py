"""The Python of the README and the docs runs as it stands, on the default model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood import LLM
from server.test_served import serving_default_model

ROOT = Path(__file__).parent.parent


def blocks(page: Path) -> Iterator[str]:
    yield from re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_example_for_the_openai_sdk_runs_against_a_served_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [code] = [block for block in blocks(ROOT / "README.md") if "from openai import" in block]
    with serving_default_model("--kv-memory", "64MiB") as (_, url):
        code = code.replace("http://127.0.0.1:8000/v1", f"{url}/v1")
        exec(code, {})
        exec(code, {})
    first, second = capsys.readouterr().out.rstrip().splitlines()[-2:]
    assert (first.rsplit(maxsplit=1)[-1], second.rsplit(maxsplit=1)[-1]) == ("0", "3")


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if any("from openai import" not in block for block in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_for_python_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A block that makes no LLM of its own is given one."""
    codes = [block for block in blocks(page) if "from openai import" not in block]
    for code in codes:
        if "LLM(" in code:
            exec(code, {})
            assert "of" in capsys.readouterr().out
        else:
            with LLM("smollm2-135m", kv_memory="64MiB") as llm:
                exec(code, {"llm": llm})
