"""The bodies of the native dialects, as far as a served model cannot show how they were read."""

from __future__ import annotations

from typing import Any

from sapwood.chat.llamacpp import NEVER, LlamaCall, parse_llama_completion
from sapwood.chat.ollama import OllamaCall, parse_ollama_chat
from sapwood.chat.sglang import parse_generate
from sapwood.types import SamplingDefaults, SamplingParams

RECOMMENDED = SamplingDefaults(temperature=0.3, top_k=7, repetition_penalty=1.1)


def sglang(**params: Any) -> SamplingParams:
    call = parse_generate({"text": "a", "sampling_params": params}, vocab_size=100)
    return call.prompts[0].params


def llama(**fields: Any) -> LlamaCall:
    return parse_llama_completion({"prompt": "a", **fields}, vocab_size=100, defaults=RECOMMENDED)


def ollama(**options: Any) -> OllamaCall:
    fields = {"messages": [{"role": "user", "content": "a"}], "options": options}
    return parse_ollama_chat(fields, vocab_size=100, defaults=RECOMMENDED)


def test_sglangs_settings_reach_the_engine_under_its_names() -> None:
    given = {
        "max_new_tokens": 9,
        "min_new_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.2,
        "stop": "x",
        "stop_token_ids": [5],
        "ignore_eos": True,
        "sampling_seed": 3,
        "n": 2,
        "logit_bias": {"4": -1},
    }
    assert sglang(**given) == SamplingParams(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=0,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=0.3,
        repetition_penalty=1.2,
        stop=("x",),
        stop_token_ids=(5,),
        ignore_eos=True,
        seed=3,
        n=2,
        logit_bias={4: -1},
    )


def test_sglangs_own_defaults_hold_and_null_is_no_limit() -> None:
    assert sglang() == SamplingParams(max_tokens=128)
    assert sglang(max_new_tokens=None).max_tokens is None


def test_llamas_settings_reach_the_engine_and_the_model_says_the_rest() -> None:
    assert llama(n_predict=4, repeat_penalty=1.3, seed=5, top_p=0.5, stop=["x", ""]).params == SamplingParams(
        max_tokens=4,
        temperature=0.3,
        top_k=7,
        top_p=0.5,
        repetition_penalty=1.3,
        seed=5,
        stop=("x",),
    )
    assert llama(seed=-1).params.seed is None
    assert llama(max_tokens=4).params.max_tokens == 4
    assert llama(n_predict=-1, max_tokens=4).params.max_tokens is None


def test_llamas_biases_are_pairs_and_false_is_never() -> None:
    assert llama(logit_bias=[[3, 1.5], [4, False]]).params.logit_bias == {3: 1.5, 4: NEVER}


def test_llamas_prompts_are_one_or_several() -> None:
    assert llama(prompt=[1, "a", 2, 3]).prompts == (((1,), "a", (2, 3)),)
    assert llama(prompt=["a", "b"]).prompts == (("a",), ("b",))
    assert llama(prompt=["a", [1, "b"]]).prompts == (("a",), ((1,), "b"))


def test_ollamas_options_reach_the_engine_and_the_model_says_the_rest() -> None:
    assert ollama(num_predict=4, repeat_penalty=1.3, seed=5, top_k=2, stop="x").params == SamplingParams(
        max_tokens=4, temperature=0.3, top_k=2, repetition_penalty=1.3, seed=5, stop=("x",)
    )
    assert ollama(num_predict=-2).params.max_tokens is None
