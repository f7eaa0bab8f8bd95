"""The examples run as they stand, against a served model, and print what they say they do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.conftest import serving
from server.test_served import serving_default_model

EXAMPLES = Path(__file__).parent.parent / "examples"
KEYS = '[[tenant]]\nname = "me"\nkey = "sk-me"\noperator = true\n'
FLAGS = ("--kv-memory", "256MiB", "--step-ledger-clock")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_default_model(*FLAGS) as (_, url):
        yield url


@pytest.fixture(scope="module")
def by_the_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that shows the contract on OpenAI's routes too, and wants keys."""
    keys = tmp_path_factory.mktemp("keys") / "tenants.toml"
    keys.write_text(KEYS)
    with serving_default_model(*FLAGS, "--ledger", "contract", "--api-keys", str(keys)) as (_, url):
        yield url


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def rows(script: str, *arguments: str) -> list[list[int]]:
    """The numbers of each step's line, in the order in which they are printed."""
    done = run(script, *arguments)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if re.match(r"\d ", line)]
    return [[int(cell) for cell in re.findall(r"(?<=\s)\d+(?!\S)", line[44:])] for line in lines]


def test_anthropic(url: str) -> None:
    first, again, later, renewed, expired, choice, tool = rows("anthropic_cache.py", url)
    new, written, read = first
    assert read == 0
    assert written > 1024
    assert again == later == renewed == [new, 0, written]
    assert expired == first
    # The tools and the system text are read, the question is written anew.
    assert choice == [new, written - choice[2], choice[2]]
    assert 1024 < choice[2] < written
    assert tool[2] == 0
    assert tool[1] > 1024


def test_gemini(url: str) -> None:
    first, again, change, made, *asked, gone = rows("gemini_cache.py", url)
    prompt = first[0]
    assert first[1] == 0
    assert again == [prompt, prompt - 1]
    assert 1024 < change[1] < prompt - 1
    assert len(asked) == 3
    assert all(cached == made[0] < prompt for prompt, cached in asked)
    assert gone == [403]


def test_ollama(url: str) -> None:
    first, again, question, change = rows("ollama_cache.py", url)
    assert first[1] < 20
    assert again[:2] == [first[0], first[0] - 1]
    assert first[1] < change[1] < question[1] < first[0]


def test_openai_physically(url: str) -> None:
    first, again, question, later, change = rows("openai_physical.py", url)
    prompt, _, template = first
    assert template < 20
    assert again == [prompt, 1, prompt - 1]
    assert template < change[2] < question[2] < prompt - 1
    assert later == [question[0], 1, question[0] - 1]
    assert all(computed + cached == prompt for prompt, computed, cached in (first, question, change))


def test_sglang(url: str) -> None:
    first, again, longer, change, salted, flushed = rows("sglang_generate.py", url)
    prompt = first[0]
    assert first == salted == flushed == [prompt, 0]
    assert again == [prompt, prompt - 1]
    assert longer[1] == prompt < longer[0]
    assert 0 < change[1] < prompt // 2 + 20


def test_openai_by_its_rules(by_the_rules: str) -> None:
    lines = rows("openai_contract.py", by_the_rules, "--key", "sk-me")
    first, again, change, key, idle, *marked = lines
    assert [line[1] for line in (first, again, change, key, idle)] == [0] * 5
    assert first[2] == key[2] == idle[2] == 0
    assert first[0] - 128 < again[2] < first[0]
    assert 1024 <= change[2] < again[2]
    assert again[2] % 128 == change[2] % 128 == 0
    written, read, expired, changed = marked
    assert written[2] == expired[2] == changed[2] == 0
    assert 1024 < written[1] == read[2] == expired[1] < written[0]
    assert read[1] == 0
    assert changed[1] > 1024


def test_responses(by_the_rules: str) -> None:
    done = run("openai_responses.py", by_the_rules, "--key", "sk-me")
    assert done.returncode == 0, done.stderr
    lines = [line[44:].split() for line in done.stdout.splitlines()[1:]]
    ahead, asked, on, within, expired, effort, change = [[int(cell) for cell in line[:3]] for line in lines]
    assert 1024 < ahead[1] < ahead[0]
    assert asked == within == [ahead[0], 0, ahead[1]]
    assert on == [on[0], on[0] - (ahead[0] - ahead[1]) - ahead[1], ahead[1]]
    assert expired == ahead
    assert effort[2] == change[2] == 0
    told = [line[3] for line in lines if len(line) > 3]
    assert told == ["cache_hit", "cache_hit", "unavailable", "reasoning_effort_changed", "input_changed"]


def test_decisions(url: str) -> None:
    done = run("decisions.py", url)
    assert done.returncode == 0, done.stderr
    costs = re.findall(r"prompts of (\d+) tokens, (\d+) of them computed", done.stdout)
    (prompts, computed), (more, fewer) = [(int(whole), int(part)) for whole, part in costs]
    assert computed < prompts < more
    assert fewer < computed
    assert len(re.findall(r"urgent: 0\.\d{3}", done.stdout)) == 2


def test_without_a_clock_that_can_be_stepped_it_is_said_how_to_get_one() -> None:
    with serving() as served:
        done = run("openai_physical.py", served.url)
    assert done.returncode == 1
    assert done.stderr.endswith("start it with --step-ledger-clock\n")


def test_each_example_is_short_tested_and_told_in_the_readme() -> None:
    told, tested = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    scripts = [path for path in EXAMPLES.glob("*.py") if path.name != "demo.py"]
    assert len(scripts) >= 8
    for path in scripts:
        assert len(path.read_text().splitlines()) <= 100
        assert f"python examples/{path.name}" in told
        assert f'"{path.name}"' in tested
