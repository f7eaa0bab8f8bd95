"""The command line in this process, with a fake model behind it; and once as a process."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

import sapwood
import sapwood.llm
from sapwood.chat.thinking import Thought
from sapwood.cli import flags, main
from sapwood.cli.chat import converse
from sapwood.cli.local import LocalModel, Options, Turn
from sapwood.cli.remote import RemoteModel
from sapwood.cli.serve import _introduce
from sapwood.cli.talk import Talk
from sapwood.config import EvictionName, IndexName, KvDtype, LedgerName, OrderName, ServerConfig, WeightFormat
from sapwood.errors import ModelError
from sapwood.model import ops_native
from server.conftest import Served, serving
from server.fakes import FakeBuilt, build_fake
from server.test_thinking import QWEN

Out = pytest.CaptureFixture[str]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBuilt:
    """What every model turns out to be."""
    built = build_fake()
    built.runner.script = "Hallo Wörld".encode()

    def build(*configs: Any, progress: Callable[[str], None]) -> FakeBuilt:
        assert configs[0].model in ("smollm2-135m", "other")
        progress("reading weights: 1 of 2")
        progress("reading weights: 2 of 2")
        return built

    monkeypatch.setattr(sapwood.llm, "build_engine", build)
    return built


def lines_in(monkeypatch: pytest.MonkeyPatch, *lines: str | BaseException) -> None:
    source = iter(lines)

    def read(*_: object) -> str:
        line = next(source, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)


def test_version(capsys: Out) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{sapwood.__version__}\n"


def test_without_a_verb_the_help_is_talk_and_wrong_usage(capsys: Out) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for verb in ("serve", "run", "chat", "pull"):
        assert verb in captured.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--kv-mem", "1"], "there is no flag --kv-mem; did you mean --kv-memory?"),
        (["serve", "--page_size", "1"], "did you mean --page-size?"),
        (["run", "x", "--maxtokens=3"], "did you mean --max-tokens?"),
        (["chat", "--urls", "x"], "did you mean --url?"),
        (["chat", "--qqqqqqqq", "x"], "there is no flag --qqqqqqqq\n\nhint: sapwood chat --help"),
        (["serve", "-x"], "there is no flag -x"),
        (["serve", "--log-json=1"], "--log-json takes no value"),
        (["serve", "--port"], "--port needs a value"),
        (["sevre"], "there is no command 'sevre'; did you mean serve?"),
        (["qqq"], "there are serve, run, chat, pull, bench, plan"),
        (["plan", "t", "--tp", "2"], "there is no flag --tp; did you mean --devices?"),
        (["plan", "t", "--tensor-parallel-size=2"], "did you mean --devices?"),
        (["plan", "t", "--gpus", "2"], "did you mean --devices?"),
        (["plan", "t", "--max-num-seqs", "2"], "did you mean --max-running?"),
        (["serve", "--tensor-parallel-size", "2"], "there is no flag --tensor-parallel-size"),
        (["plan"], "TRACE is missing\n\nhint: sapwood plan TRACE, or sapwood plan --reproduce"),
        (["plan", "--seeds", "3"], "--seeds goes with --reproduce"),
        (["plan", "--any-seeds"], "--any-seeds goes with --reproduce"),
        (["plan", "--reproduce", "--seeds", "0"], "--seeds is 0"),
        (["run"], "PROMPT is missing"),
        (["run", "a", "b"], "'b' is one argument too many"),
        (["plan", "a\0b"], "TRACE has a character of number 0"),
        (["plan", "x" * 300], "TRACE is 'xxxx"),
        (["plan", "t", "--html", "x" * 300], "no file's name is 300 bytes long"),
        (["plan", "t", "--cost", "x/" * 2500], "no file's name is 5,000 bytes long"),
        (["plan", "t", "--model-shape", "x" * 5000], "no file's name is 5,000 bytes long"),
        (["plan", "ä/" * 1500], "no file's name is 4,500 bytes long"),
        (["bench", "--ours", "a\0b"], "--ours has a character of number 0"),
        (["bench", "--ours", "x" * 300], "--ours: 'xxxx"),
        (["bench", "--peers", "a\0b"], "--peers has a character of number 0"),
        (["bench", "--peers", "x" * 300], "no peer is called xxxx"),
        (["plan", "t", "--price", "inf"], "--price is inf; it must be between 0 and 1000000000"),
        (["serve", "--port", "many"], "--port is 'many'; it must be a whole number"),
        (["serve", "--port", "70000"], "--port is 70000; it must be between 0 and 65535"),
        (["serve", "--page-size", "0"], "--page-size is 0; it must be between 1 and 256"),
        (["serve", "--chunk-tokens", "0"], "--chunk-tokens is 0; it must be at least 1"),
        (["serve", "--max-running", "0"], "--max-running is 0; it must be at least 1"),
        (["serve", "--max-context", "1"], "--max-context is 1; it must be at least 2"),
        (["serve", "--threads", "0"], "--threads is 0; it must be between 1 and 256"),
        (["serve", "--threads", "-3"], "--threads is -3"),
        (["serve", "--threads", "999"], "--threads is 999"),
        (["run", "x", "--threads", "-2"], "--threads is -2"),
        (["chat", "--threads", "257"], "--threads is 257"),
        (["bench", "kernels", "--threads", "0"], "--threads is 0"),
        (["run", "x", "--temperature", "-1"], "--temperature is -1; it must be between 0 and 100"),
        (["chat", "--temperature", "nan"], "--temperature is 'nan'; it must be a number"),
        (["run", "x", "--temperature", "hot"], "--temperature is 'hot'; it must be a number"),
        (["run", "x", "--seed", "-1"], "--seed is -1; it must be between 0 and 18446744073709551615"),
        (["run", "x", "--max-tokens", "-1"], "--max-tokens is -1; it must be at least 0"),
        (["chat", "--max-tokens", "0"], "--max-tokens is 0; it must be at least 1"),
        (["serve", "--kv-memory", "lots"], "512MiB"),
        (["serve", "--kv-memory", ""], "512MiB"),
        (["serve", "--weights", "q5"], "it must be one of auto, f32, f16, q8, q4"),
        (["serve", "--kv-dtype", "q4"], "it must be one of f16, bf16, f32, q8"),
        (["serve", "--compute", "int4"], "it must be one of auto, f32, int8"),
        (["serve", "--prefix-index", "radixx"], "did you mean radix?"),
        (["serve", "--schedule-policy", "defalt"], "did you mean default?"),
        (["serve", "--pin-share", "2"], "--pin-share is 2; it must be between 0 and 1"),
        (["serve", "--pin-share", "much"], "--pin-share is 'much'; it must be a number"),
        (["serve", "--prefix-index", "blocks", "--eviction-policy", "slru"], "blocks index evicts by lru"),
        (["serve", "--anthropic-minimum", "0"], "--anthropic-minimum is 0; it must be at least 1"),
        (["serve", "--ledger", "physicl"], "one of auto, contract, physical\n\nhint: did you mean physical?"),
        (["serve", "--cache-dir", "here"], "none"),
        (["serve", ""], "MODEL is empty"),
        (["chat", ""], "MODEL is empty"),
        (["pull", " "], "MODEL is empty"),
        (["run", "x", "--model", ""], "--model is empty"),
        (["serve", "--served-model-name", ""], "--served-model-name is empty"),
        (["serve", "--host", ""], "--host is empty"),
        (["serve", "--api-keys", ""], "--api-keys is empty"),
        (["serve", "--capture", ""], "--capture is empty"),
        (["serve", "--capture", "no/such/file.jsonl"], "cannot write no/such/file.jsonl: No such file"),
        (["serve", "--api-keys", "no/such.toml"], "cannot read the tenants file no/such.toml: No such file"),
        (["serve", "nosuch"], "no model is called 'nosuch'"),
        (["run", "x", "--model", "nosuch"], "no model is called 'nosuch'"),
        (["serve", "pypi:a/b"], "pypi:PACKAGE"),
        (["chat", "--url", "ftp://x"], "http://"),
        (["chat", "--url", "http://x:many"], "http://"),
        (["chat", "--url", "http://x", "--threads", "2"], "--threads"),
        (["bench", "cach"], "did you mean cache?"),
        (["bench", "cache", "--against", "http://x"], "--against goes with serve, not with cache"),
        (["bench", "cache", "--threads", "2"], "--threads goes with serve and kernels, not with cache"),
        (["bench", "kernels", "--cases", "x"], "--cases goes with serve and cache, not with kernels"),
        (["bench", "cache", "--cases", "nope"], "no case is called nope; there are operations"),
        (["bench", "--trace", "x"], "--trace goes with cache, not with serve"),
        (["bench", "--quick", "--full"], "exclude each other"),
        (["bench", "--against", "nonsense"], "--against: 'nonsense' is not the URL"),
        (["bench", "cache", "--alone"], "--alone goes with serve, not with cache"),
        (["bench", "--alone"], "--alone measures the server of --against URL"),
        (["bench", "--api-key", "x"], "--api-key is for the server of --against URL"),
        (["bench", "--peers", "lama"], "no peer is called lama"),
        (["bench", "--llama-server", "/no/program"], "'/no/program' is no program"),
        (["bench", "--pairs", "0"], "--pairs is 0"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(arguments: list[str], said: str, capsys: Out) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sapwood: ")
    assert said in captured.err


def test_every_policy_is_offered_and_taken(capsys: Out) -> None:
    """What config knows, help shows."""
    assert main(["serve", "-h"]) == 0
    shown = capsys.readouterr().out
    for literal in (EvictionName, IndexName, KvDtype, LedgerName, OrderName, WeightFormat):
        assert "|".join(get_args(literal)) in shown
    for flag, literal in (("--schedule-policy", OrderName), ("--eviction-policy", EvictionName)):
        for name in get_args(literal):
            # The check of the model's name comes after all flags were taken.
            assert main(["serve", "nosuch", flag, name]) == 2
            assert "no model is called" in capsys.readouterr().err
    known = ", ".join(get_args(EvictionName))
    assert main(["serve", "--eviction-policy", "qqq"]) == 2
    err = capsys.readouterr().err
    assert err.endswith(f"{known}\n")


@pytest.mark.parametrize("verb", [[], ["serve"], ["run"], ["chat"], ["pull"], ["bench"], ["plan"]])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_asked_for_in_both_ways(verb: list[str], flag: str, capsys: Out) -> None:
    assert main([*verb, flag]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(" ".join(["Usage: sapwood", *verb]))
    assert captured.err == ""


def test_as_many_threads_as_the_native_ops_take() -> None:
    assert flags.MOST_THREADS == ops_native.MOST_THREADS


@pytest.mark.parametrize("model", ["nosuch", "./nowhere.gguf"])
def test_no_port_is_bound_for_a_model_that_is_not_there(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def bind(*_: Any) -> None:
        raise AssertionError("a server is made")

    monkeypatch.setattr("sapwood.server.Server", bind)
    assert main(["serve", model]) == (2 if model == "nosuch" else 1)
    captured = capsys.readouterr()
    assert "listening" not in captured.err
    assert model in captured.err


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        ([], False),
        (["--host", "localhost"], False),
        (["--host", "127.1.2.3"], False),
        (["--host", "::1"], False),
        (["--host", "0.0.0.0"], True),
        (["--host", "::"], True),
        (["--host", "some.host"], True),
        (["--host", "0.0.0.0", "--api-keys", "tenants.toml"], False),
    ],
)
def test_an_open_server_without_keys_is_warned_of(
    arguments: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    class Server:
        url = "http://somewhere"

        def __init__(self, _load: object, config: ServerConfig, _say: object) -> None:
            keys = "tenants.toml" if "--api-keys" in arguments else None
            assert config.api_keys == (keys and Path(keys))

        def run(self) -> None:
            pass

    monkeypatch.setattr("sapwood.server.Server", Server)
    assert main(["serve", *arguments]) == 0
    assert ("note: without --api-keys, everyone who can reach" in capsys.readouterr().err) == warned


def test_a_server_that_captures_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Out, tmp_path: Path) -> None:
    class Server:
        url = "http://somewhere"

        def __init__(self, _load: object, _config: object, _say: object) -> None:
            pass

        def run(self) -> None:
            pass

    monkeypatch.setattr("sapwood.server.Server", Server)
    path = tmp_path / "captured.jsonl"
    assert main(["serve", "--capture", str(path)]) == 0
    assert f"note: requests, their tokens and their answers, are written to {path}" in capsys.readouterr().err
    assert main(["serve"]) == 0
    assert "note: requests" not in capsys.readouterr().err


def test_the_ledgers_clock_can_be_stepped_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    class Server:
        url = "http://somewhere"
        stepped: ClassVar[list[bool]] = []

        def __init__(self, _load: object, config: ServerConfig, _say: object) -> None:
            self.stepped.append(config.step_ledger_clock)

        def run(self) -> None:
            pass

    monkeypatch.setattr("sapwood.server.Server", Server)
    assert main(["serve"]) == main(["serve", "--step-ledger-clock"]) == 0
    assert Server.stepped == [False, True]
    # It is for trying things out, so it is told in the docs and not among the flags of every day.
    assert main(["serve", "-h"]) == 0
    assert "--step-ledger-clock" not in capsys.readouterr().out


@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_what_is_no_model_is_1(what: str, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "it"
    if what == "a file":
        path.write_text("Hello")
    else:
        path.mkdir()
    assert main(["run", "hi", "--model", str(path)]) == 1
    assert main(["serve", "--port", "0", str(path)]) == 1
    assert capsys.readouterr().err.count("sapwood: ") == 2


@pytest.mark.parametrize(("asked", "noted"), [(None, False), (100, False), (4096, False), (999_999, True)])
def test_a_context_longer_than_the_models_is_noted(asked: int | None, noted: bool, capsys: Out) -> None:
    _introduce(build_fake(), asked, Talk())  # type: ignore[arg-type]
    told = capsys.readouterr().err
    note = "note: --max-context is 999999, more than the model's 4096, which holds\n"
    assert (note in told) == noted == ("--max-context" in told)


def test_ctrl_c_ends_run_with_130(fake: FakeBuilt, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr(LocalModel, "answer", interrupted_after("Hal", "lo"))
    assert main(["run", "hi"]) == 130
    captured = capsys.readouterr()
    assert captured.out == "Hallo\n"
    assert captured.err.endswith("sapwood: interrupted\n")
    assert not fake.loop.alive
    assert main(["run", "hi", "--json"]) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("fake")
def test_ctrl_c_in_chat_cuts_an_answer_and_ends_at_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr(LocalModel, "answer", interrupted_after("Hal"))
    lines_in(monkeypatch, "hi", "again", KeyboardInterrupt())
    assert main(["chat"]) == 130
    captured = capsys.readouterr()
    assert captured.out == "Hal\nHal\n"
    assert [line for line in captured.err.splitlines() if "interrupted" in line] == [
        "interrupted",
        "interrupted",
        "sapwood: interrupted",
    ]


def interrupted_after(*pieces: str) -> Callable[..., Iterator[str]]:
    def answer(*_: Any) -> Iterator[str]:
        yield from pieces
        raise KeyboardInterrupt

    return answer


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["pull", "."], ["bench", "cache", "--quick"]])
def test_a_full_disk_is_told_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sapwood", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1] / "src",
        )
    assert done.returncode == 1
    assert done.stderr.endswith("sapwood: cannot write: No space left on device\n")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_stdin_that_is_no_text(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert main(["run", "-"]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_bench_shows_the_command_that_was_typed(capsys: Out) -> None:
    assert main(["bench", "--quick", "cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "sapwood bench --quick cache --json"


def test_bench_passes_every_flag_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Harness:
        def main(self, arguments: list[str], called_as: list[str]) -> int:
            del called_as
            given.extend(arguments)
            return 0

    monkeypatch.setattr("sapwood.cli.bench._harness", Harness)
    flags = ["--trace", "a.jsonl", "--trace=b.jsonl", "--cases", "memory", "--quick"]
    assert main(["bench", "cache", *flags]) == 0
    assert given == ["cache", "--cases=memory", "--trace=a.jsonl", "--trace=b.jsonl", "--quick"]


def test_run_streams_the_answer_to_stdout_and_talks_on_stderr(fake: FakeBuilt, capsys: Out) -> None:
    assert main(["run", "hi"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\n"
    assert captured.err == "reading weights\n"
    assert not fake.loop.alive


@pytest.mark.usefixtures("fake")
def test_run_formats_the_prompt_unless_raw(capsys: Out) -> None:
    assert main(["run", "hi", "--json"]) == 0
    formatted = json.loads(capsys.readouterr().out)
    assert formatted["text"] == "Hallo Wörld"
    assert formatted["finish_reason"] == "stop"
    assert formatted["reused_tokens"] == 0
    assert formatted["completion_tokens"] == len("Hallo Wörld".encode()) + 1
    assert formatted["prompt_tokens"] > len("hi")


@pytest.mark.usefixtures("fake")
def test_run_raw_cut_short(capsys: Out) -> None:
    assert main(["run", "hi", "--raw", "--json", "--max-tokens", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["prompt_tokens"], report["text"], report["finish_reason"]) == (2, "Hal", "length")


@pytest.mark.usefixtures("fake")
def test_a_request_that_cannot_be_served_is_1(capsys: Out) -> None:
    assert main(["run", "x" * 5000]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4096" in captured.err
    assert "hint:" in captured.err


def test_a_model_that_cannot_be_loaded_is_1(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    def build(*_: Any, **__: Any) -> FakeBuilt:
        raise ModelError("the file is cut at tensor blk.3", hint="fetch it again")

    monkeypatch.setattr(sapwood.llm, "build_engine", build)
    assert main(["run", "hi"]) == 1
    assert capsys.readouterr().err == "sapwood: the file is cut at tensor blk.3\n\nhint: fetch it again\n"


@pytest.mark.usefixtures("fake")
def test_chat_keeps_history_and_says_what_was_reused(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    lines_in(monkeypatch, "hi", "again")
    assert main(["chat", "other", "--system", "Be kind."]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\nHallo Wörld\n"
    first, second = [line.split() for line in captured.err.splitlines() if line.startswith("reused")]
    assert first[1] == "0"
    # All of the first turn's prompt, and its answer but for the end token that the template writes otherwise.
    assert int(second[1]) == int(first[3]) + len("Hallo Wörld".encode())
    assert int(second[3]) > int(second[1])


@pytest.mark.usefixtures("fake")
def test_a_turn_that_does_not_fit_leaves_the_conversation_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lines_in(monkeypatch, "hi", "x" * 5000, "again", "")
    assert main(["chat"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hallo Wörld\nHallo Wörld\n"
    assert "4096" in captured.err


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_chat_with_a_server(
    server: Served, suffix: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    server.script("Grüße 🌲".encode())
    lines_in(monkeypatch, "hi", "again")
    assert main(["chat", "--url", server.url + suffix]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Grüße 🌲\nGrüße 🌲\n"
    turns = [line for line in captured.err.splitlines() if line.startswith("reused")]
    assert len(turns) == 2
    assert turns[0].startswith("reused 0 of ")


def test_what_a_server_tells_of_a_thought_is_none_of_the_answer() -> None:
    with serving(template=QWEN) as server:
        server.script(b"<think>\nIs it 4?\n</think>\n\nYes, 4.")
        model = RemoteModel(server.url, None)
        pieces = list(model.answer([{"role": "user", "content": "2 + 2?"}], Options()))
    texts = [piece for piece in pieces if isinstance(piece, str)]
    thoughts = [piece.text for piece in pieces if isinstance(piece, Thought)]
    assert pieces == [*map(Thought, thoughts), *texts]
    assert ("".join(thoughts).strip(), "".join(texts)) == ("Is it 4?", "Yes, 4.")


@pytest.mark.parametrize(
    ("pieces", "out", "err"),
    [
        ([Thought("Is it "), Thought("[4]?"), "Yes, ", "4."], "Yes, 4.", "Is it [4]?\n"),
        ([Thought("Is it 4?")], "", "Is it 4?\n"),
        (["Yes, 4."], "Yes, 4.", ""),
        ([], "", ""),
    ],
)
def test_thoughts_are_talk_and_no_part_of_the_history(
    pieces: list[str | Thought], out: str, err: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    asked: list[list[Mapping[str, str]]] = []

    class Thinker:
        turn = Turn(8, 5)

        def answer(self, messages: Sequence[Mapping[str, str]], _: Options) -> Iterator[str | Thought]:
            asked.append([*messages])
            yield from pieces

    lines_in(monkeypatch, "hi", "again")
    converse(Thinker(), Talk(), Options(), None)
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n" * 2
    assert captured.err == f"{err}reused 5 of 8 tokens\n" * 2
    assert asked[1][1] == {"role": "assistant", "content": out}


def test_a_server_that_refuses_or_is_not_there(
    server: Served, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lines_in(monkeypatch, "hi")
    assert main(["chat", "wrong", "--url", server.url]) == 1
    assert "'wrong' is not served here" in capsys.readouterr().err
    assert main(["chat", "--url", "http://127.0.0.1:9"]) == 1
    assert "is the server running?" in capsys.readouterr().err


KEYS = '[[tenant]]\nname = "a"\nkey = "sk-a"\n'


def test_chat_sends_a_key_and_says_when_one_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    (tmp_path / "tenants.toml").write_text(KEYS)
    with serving(api_keys=tmp_path / "tenants.toml") as server:
        server.script(b"ok")
        chat = ["chat", "--url", server.url]
        assert main(chat) == 1
        assert "the server wants a key" in (said := capsys.readouterr().err)
        assert "SAPWOOD_API_KEY" in said
        assert main([*chat, "--api-key", "sk-wrong"]) == 1
        assert "the server does not take this key" in (said := capsys.readouterr().err)
        assert "sk-wrong" not in said
        for extra, variable in ((["--api-key", "sk-a"], "sk-wrong"), ([], "sk-a")):
            monkeypatch.setenv("SAPWOOD_API_KEY", variable)
            lines_in(monkeypatch, "hi")
            assert main([*chat, *extra]) == 0
            assert capsys.readouterr().out == "ok\n"
        assert main([*chat, "--api-key", "sk-ä\n"]) == 2
        assert "--api-key must be printable ASCII" in capsys.readouterr().err


def test_pull_prints_the_path_alone(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert main(["pull", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert main(["pull", "smollm2-135"]) in (1, 2)
    assert "smollm2-135m" in capsys.readouterr().err


def test_as_a_process() -> None:
    command = [sys.executable, "-m", "sapwood", "serve", "--kv-mem", "1GiB"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1] / "src"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean --kv-memory?" in done.stderr
