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


TESTS = ROOT / "tests"


def features() -> dict[tuple[str, str], dict[str, str]]:
    """The table of dialects: each feature, under its group, with the cell of each dialect."""
    page = (ROOT / "docs" / "dialects.md").read_text().split("## What each has")[1].split("\n## ")[0]
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"
    ]
    found, group = {}, ""
    for name, *cells in rows:
        if name.startswith("**"):
            group = name.strip("*")
        else:
            found[group, name] = dict(zip(header[1:], cells, strict=True))
    return found


def shown() -> dict[tuple[str, str], dict[str, list[str]]]:
    """The page of tests: each feature, under its group, with the tests of each dialect."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    group = feature = ""
    for line in (ROOT / "docs" / "dialect-tests.md").read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("### "):
            feature = line[4:]
        elif line.startswith("- "):
            dialects, tests = line[2:].split(": ", 1)
            for dialect in dialects.split(", "):
                found.setdefault((group, feature), {})[dialect] = re.findall(r"`([^`]+)`", tests)
    return found


def test_the_table_of_dialects_and_the_page_of_its_tests_agree() -> None:
    table = features()
    assert len(table) > 30
    assert {cell for cells in table.values() for cell in cells.values()} == {"✓", "no", "–"}
    ticked = {
        feature: {dialect for dialect, cell in cells.items() if cell == "✓"}
        for feature, cells in table.items()
    }
    assert {feature: set(tests) for feature, tests in shown().items()} == ticked


def test_each_test_of_a_dialect_that_is_named_is_there() -> None:
    named = {test for tests in shown().values() for each in tests.values() for test in each}
    assert len(named) > 100
    assert [test for test in sorted(named) if not is_there(test)] == []


def is_there(test: str) -> bool:
    """Whether `file::test` names a test of the suite."""
    file, _, name = test.partition("::")
    path = TESTS / file
    return path.is_file() and f"\ndef {name}(" in path.read_text()
