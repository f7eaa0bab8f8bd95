"""Ids against the tokenizers of transformers; control tokens against text that only spells them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import tiny
from sapwood.chat.tokenizer import Tokenizer
from sapwood.errors import ModelError

CORPUS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\t\ttabs\n\n\nnewlines\r\nand\u00a0no-break\u2003em\u3000ideographic\u200bzero width",
    "def f(x: int) -> str:\n    return f'{x!r:>10}'  # comment\n\n\nclass A(B):\n\tpass\n",
    "for (int i = 0; i < 10; ++i) { a[i] <<= 0xFF; } // 3.14159e-10 && x != y || z",
    '{"key": [1, 2.5, null, true], "näme": "va\\"lue\\u00e9"}',
    "2024-11-29T10:04:31Z 1234567890 0042 ١٢٣ Ⅷ ½ x² 1,000,000.00",
    "I'm you're he'll we've they'd it's I'M YOU'RE",
    "naïve café Ångström ﬁ ŒUVRE ß İstanbul e\u0301 (combining)",
    "Привет, мир! Γειά σου Κόσμε שלום עולם مرحبا بالعالم नमस्ते दुनिया ทดสอบ",
    "你好，世界！こんにちは世界。안녕하세요 세계 𠮷野家",
    "emoji 😀😃🏳️‍🌈👩‍👩‍👧‍👦👍🏽🇩🇪 ☃️ ✓ → ∑∫√",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start|> <|im_end |> <|im_start <repo_name> <file_sep>x<jupyter_code> <|IM_END|>",
    "a" * 300 + " " * 70 + "=" * 100,
    "https://example.com/a/b?c=d&e=%20#frag user@example.org C:\\dir\\file.txt",
    "\u0000\u0001\u0014\u007f\u0085\ufeff\ufffd\U000e0001",
]


@pytest.mark.parametrize("text", CORPUS)
def test_the_default_model_s_ids_are_those_of_transformers(text: str, smollm: Tokenizer, judge: Any) -> None:
    assert smollm.encode(text, special=True) == judge.encode(text, add_special_tokens=False)


@settings(max_examples=300)
@given(text=st.lists(st.one_of(st.text(max_size=8), st.sampled_from(CORPUS))).map("".join))
def test_any_text_s_ids_are_those_of_transformers(text: str, smollm: Tokenizer, judge: Any) -> None:
    assert smollm.encode(text, special=True) == judge.encode(text, add_special_tokens=False)


def test_the_default_model_reads_digits_one_by_one(smollm: Tokenizer) -> None:
    """As its own tokenizer.json says (transformers' reading of the GGUF joins a space to a digit)."""
    ids = smollm.encode("in 2024")
    assert [smollm.token_text(i) for i in ids] == ["in", " ", "2", "0", "2", "4"]


@pytest.mark.parametrize("text", CORPUS[:-1])
def test_decoding_gives_the_text_back(text: str, smollm: Tokenizer, judge: Any) -> None:
    ids = smollm.encode(text)
    kept = judge.decode(judge.encode(text, add_special_tokens=False), clean_up_tokenization_spaces=False)
    assert smollm.decode(ids) == kept
    assert b"".join(map(smollm.token_bytes, ids)).decode("utf-8", "replace") == kept


def test_facts_of_the_default_model(smollm: Tokenizer) -> None:
    assert (smollm.vocab_size, smollm.bos_id, smollm.eos_id, smollm.add_bos) == (49152, 1, 2, False)
    assert smollm.special_ids == set(range(17))
    assert smollm.special_tokens[2].text == smollm.token_text(2) == "<|im_end|>"
    assert smollm.token_id("<|im_end|>") == 2
    assert smollm.token_id("no such entry") is None
    assert smollm.token_bytes(49151) != b""
    assert smollm.token_bytes(49152) == smollm.token_bytes(-1) == b""


def test_control_tokens_come_out_of_trusted_text_only(smollm: Tokenizer) -> None:
    text = "<|im_start|>user\nhi<|im_end|>"
    assert [i for i in smollm.encode(text, special=True) if i in smollm.special_ids] == [1, 2]
    plain = smollm.encode(text)
    assert smollm.special_ids.isdisjoint(plain)
    assert smollm.decode(plain) == text
    assert smollm.decode(smollm.encode(text, special=True)) == "user\nhi"
    assert smollm.decode(smollm.encode(text, special=True), skip_special=False) == text


@settings(max_examples=200)
@given(
    parts=st.lists(
        st.sampled_from([*tiny.SPECIALS, "<|im_", "end|>", "<|", "|>", " ", "\n", "a", "<repo_name>"])
    )
)
def test_no_text_becomes_a_control_token(parts: list[str], smollm: Tokenizer) -> None:
    text = "".join(parts)
    ids = smollm.encode(text)
    assert smollm.special_ids.isdisjoint(ids)
    assert smollm.decode(ids) == text


@pytest.mark.parametrize("text", CORPUS)
def test_a_tokenizer_json_s_ids_are_those_of_transformers(
    text: str, small: Tokenizer, tiny_folder: Path
) -> None:
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tiny_folder / "tokenizer.json"))
    assert small.encode(text, special=True) == theirs.encode(text, add_special_tokens=False)
    assert small.decode(small.encode(text)) == text


def test_facts_of_a_tokenizer_json(small: Tokenizer) -> None:
    assert (small.bos_id, small.eos_id, small.add_bos) == (0, 2, False)
    assert small.vocab_size == 3 + 256 + len(tiny.MERGED)
    assert small.special_ids == {0, 1, 2}


def test_lone_surrogates_are_read_as_replacement_characters(small: Tokenizer) -> None:
    assert small.decode(small.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"
    assert small.decode(small.encode("\ud83d\ude00")) == "😀"


def write(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**tiny.tokenizer_description(), **changes}), encoding="utf-8")
    return path


def test_the_start_token_is_found_by_trying_unless_the_config_says(tmp_path: Path) -> None:
    start = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": tiny.SPECIALS[0], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {
            tiny.SPECIALS[0]: {"id": tiny.SPECIALS[0], "ids": [0], "tokens": [tiny.SPECIALS[0]]}
        },
    }
    start["pair"] = [*start["single"], {"Sequence": {"id": "B", "type_id": 1}}]
    path = write(tmp_path / "t.json", post_processor=start)
    named: dict[str, object] = {"bos_token": {"content": tiny.SPECIALS[0]}}
    assert Tokenizer.from_json(path, named).add_bos
    assert Tokenizer.from_json(path, named).encode("a") == [
        tiny.tokenizer_description()["model"]["vocab"]["a"]
    ]
    assert not Tokenizer.from_json(path, {**named, "add_bos_token": False}).add_bos
    assert not Tokenizer.from_json(path).add_bos
    plain = write(tmp_path / "p.json")
    assert Tokenizer.from_json(plain, {**named, "add_bos_token": True}).add_bos


def test_truncation_and_padding_of_a_tokenizer_json_are_not_applied(tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    pad = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": tiny.SPECIALS[0],
    }
    tokenizer = Tokenizer.from_json(write(tmp_path / "t.json", truncation=cut, padding=pad))
    for special in (False, True):
        assert tokenizer.decode(tokenizer.encode("q" * 20, special=special)) == "q" * 20
        assert len(tokenizer.encode("q", special=special)) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"decoder": {"type": "WordPiece"}}',
        b'{"decoder": {"type": "ByteLevel"}, "model": 1}',
    ],
)
def test_a_bent_tokenizer_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelError):
        Tokenizer.from_json(path)
    with pytest.raises(ModelError, match="cannot read"):
        Tokenizer.from_json(tmp_path / "nothing.json")


# ---- GGUF vocabularies -------------------------------------------------------------------------------------


def byte_level_facts(pre: str | None, *words: str) -> dict[str, object]:
    """A GGUF vocabulary of bytes and `words`, each word merged from its first letters and its last one."""
    entries = [*tiny.SPECIALS, *tiny.byte_level_alphabet(), *words]
    facts: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": entries,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(entries) - 3),
        "tokenizer.ggml.merges": [f"{word[:-1]} {word[-1]}" for word in words if word != "xyz"],
    }
    return facts if pre is None else {**facts, "tokenizer.ggml.pre": pre}


def pieces(pre: str | None, text: str) -> list[str]:
    tokenizer = Tokenizer.from_gguf(
        byte_level_facts(pre, "12", "123", "1234", "'S", "ab", "xyz", "Ċa", "!Ċ", "Ã©")
    )
    return [tokenizer.token_text(i) for i in tokenizer.encode(text)]


def test_each_pre_tokenizer_cuts_as_its_model_does() -> None:
    assert pieces("gpt-2", "1234") == pieces(None, "1234") == ["1234"]
    assert pieces("smollm", "1234") == pieces("qwen2", "1234") == ["1", "2", "3", "4"]
    assert pieces("llama-bpe", "1234") == ["123", "4"]
    assert pieces("gpt-2", "a'Sb") == ["a", "'", "S", "b"]
    assert pieces("llama-bpe", "a'S") == pieces("qwen2", "a'S") == ["a", "'S"]
    assert pieces("gpt-2", "!\na") == ["!", "\n", "a"]
    assert pieces("qwen2", "!\na") == ["!\n", "a"]
    assert pieces("llama-bpe", "xyz") == ["xyz"]
    assert pieces("qwen2", "xyz") == ["x", "y", "z"]
    assert pieces("qwen2", "e\u0301") == ["é"]
    assert len(pieces("gpt-2", "e\u0301")) == 3
    assert pieces("dbrx", "1234") == pieces("gpt-4o", "1234") == ["123", "4"]
    assert pieces("dbrx", "xyz") == ["x", "y", "z"]


def test_phi_4_minis_words_end_where_capitals_begin_and_keep_their_contractions() -> None:
    def words(pre: str, text: str) -> list[str]:
        """The pieces that no merge may cross."""
        tokenizer = Tokenizer.from_gguf(byte_level_facts(pre, "ab"))._trusting
        assert tokenizer.pre_tokenizer is not None
        return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    assert words("gpt-4o", "parseHTTPBody") == ["parse", "HTTPBody"]
    assert words("gpt-4o", "We'll see") == ["We'll", "Ġsee"]
    assert words("gpt-4o", "a //\nb") == ["a", "Ġ//Ċ", "b"]
    assert words("dbrx", "parseHTTP We'll") == ["parseHTTP", "ĠWe", "'ll"]


def test_start_tokens_of_gguf_files() -> None:
    def adds(pre: str, **facts: object) -> bool:
        named = {f"tokenizer.ggml.{key}": value for key, value in facts.items()}
        return Tokenizer.from_gguf({**byte_level_facts(pre, "ab"), **named}).add_bos

    assert adds("llama-bpe", bos_token_id=0)
    assert not adds("qwen2", bos_token_id=0)
    assert adds("qwen2", bos_token_id=0, add_bos_token=True)
    assert not adds("llama-bpe", bos_token_id=0, add_bos_token=False)
    assert not adds("llama-bpe")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer.ggml.model": "bert"}, "bert"),
        ({"tokenizer.ggml.model": None}, "model"),
        ({"tokenizer.ggml.pre": "klingon"}, "klingon"),
        ({"tokenizer.ggml.tokens": None}, "tokens"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "token_type"),
        ({"tokenizer.ggml.merges": None}, "merges"),
        ({"tokenizer.ggml.merges": ["qq zz"]}, "not usable"),
        ({"tokenizer.ggml.eos_token_id": 10_000}, "eos_token_id"),
        ({"tokenizer.ggml.model": "llama"}, "scores"),
    ],
)
def test_vocabularies_that_do_not_fit_are_refused_by_name(changes: Mapping[str, object], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        Tokenizer.from_gguf({**byte_level_facts("gpt-2", "ab"), **changes})


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(sentencepiece: Tokenizer) -> None:
    def pieces(text: str) -> list[str]:
        return [sentencepiece.token_text(i) for i in sentencepiece.encode(text)]

    assert pieces("hello world") == [" hello", " world"]
    assert pieces("held") == [" ", "he", "ld"]
    assert sentencepiece.encode("😀")[1:] == [3 + byte for byte in "😀".encode()]
    assert sentencepiece.add_bos
    for text in ("hello world", "  hello", "世é😀\n", "<s>hello</s>", ""):
        assert sentencepiece.decode(sentencepiece.encode(text)) == text


def test_sentencepiece_merges_cannot_reach_a_control_token(sentencepiece: Tokenizer, tmp_path: Path) -> None:
    assert sentencepiece.special_ids.isdisjoint(sentencepiece.encode("<s>"))
    description = json.loads(sentencepiece_json(merge_to_control=True))
    path = tmp_path / "t.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    reached = Tokenizer.from_json(path)
    assert reached.encode("x<s>", special=True)[-1] == 1
    ids = reached.encode("x<s>")
    assert reached.special_ids.isdisjoint(ids)
    assert reached.decode(ids) == "x<s>"


def sentencepiece_json(*, merge_to_control: bool) -> str:
    vocab = {text: i for i, text in enumerate(["<unk>", "<s>", "</s>", "▁", "<", "s", ">", "x", "s>"])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": text, **flags} for text, i in list(vocab.items())[:3]],
            "normalizer": space,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            "model": {
                "type": "BPE",
                "vocab": vocab,
                "merges": [["s", ">"], ["<", "s>"]] if merge_to_control else [["s", ">"]],
                "unk_token": "<unk>",
            },
        }
    )


def test_text_in_mid_flow_gets_no_first_space(tmp_path: Path) -> None:
    """Metaspace with prepend_scheme "first" marks the very first word only, as newer Llama files do."""
    description = json.loads(sentencepiece_json(merge_to_control=False))
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    description.update(normalizer=None, pre_tokenizer=metaspace, decoder=metaspace)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    tokenizer = Tokenizer.from_json(path)
    first, later = tokenizer.encode("x"), tokenizer.encode("x", continues=True)
    assert [tokenizer.token_text(i) for i in first] == [" ", "x"]
    assert [tokenizer.token_text(i) for i in later] == ["x"]
    whole = tokenizer.encode("x<s>x", special=True)
    assert whole == [*tokenizer.encode("x"), 1, *later]
    assert tokenizer.decode(first) == "x"
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode("<s>", continues=True))
