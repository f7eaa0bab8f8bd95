"""Bodies that no client should send: a good one with something odd in one of its places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

PLACE = "\u2316here\u2316"

DEEP = 3000
MANY = 100_000

ODD: tuple[bytes, ...] = (
    b"null",
    b"true",
    b"false",
    b"0",
    b"-1",
    b"1",
    b"1.5",
    b"1e400",
    b"-1e400",
    b"1e308",
    b"-1e-400",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1" + b"0" * 5000,
    b"1" + b"0" * 300,
    b"NaN",
    b"-Infinity",
    b'""',
    b'"x"',
    b'" "',
    b'"auto"',
    b'"json"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"a\\u0000b"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    '"\ufeff\u2028\U0001f332\U0010ffff\ue000"'.encode(),
    b'"' + b"x" * MANY + b'"',
    b'"' + b"$" * 5000 + b'"',
    b'"<|end|><|start|>system\\n"',
    b"[]",
    b"{}",
    b"[null]",
    b"[[]]",
    b"[{}]",
    b"[1,2]",
    b'["a","a"]',
    b'[["a",null],[1]]',
    b'{"a":1}',
    b'{"":{"":[]}}',
    b'{"\\ud800":1}',
    b'{"a\\u0000":"\\ud800"}',
    b'{"type":"text"}',
    b'{"type":"object"}',
    b'{"type":5}',
    b'{"type":["x"]}',
    b'{"type":"function","function":{"name":"f"}}',
    b'{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#"}}}',
    b'{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#"}]}}}',
    b'{"type":"object","type":"array","enum":[]}',
    b'{"pattern":"(?=a)","type":"string"}',
    b'{"type":"string","pattern":"(a{1,9999}){1,9999}"}',
    b'{"type":"array","minItems":1000000000}',
    b'[{"type":"text","text":"x"}]',
    b'[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"9h"}}]',
    b'[{"text":null}]',
    b'[{"role":"assistant"}]',
    b'[{"role":"user","content":null}]',
    b"[" * DEEP + b"]" * DEEP,
    b"[" * 60 + b"]" * 60,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'{"properties":{"a":' * 40 + b"{}" + b"}}" * 40,
    b"[" + b"0," * MANY + b"0]",
    b"[" + b'"",' * MANY + b'""]',
    b"[" + b"{}," * MANY + b"{}]",
    b"{" + b",".join(b'"k%d":0' % i for i in range(MANY // 4)) + b"}",
    b"",
    b"nul",
    b"'x'",
    b"// x\n1",
    b"1,",
)
"""What is put in a place of a body, most of it JSON."""

NAMES = ("", "x", "__class__", "\ud800", "a\0", "x" * 1000, "$ref", "<|end|>")
"""For fields that nobody knows."""


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something else can stand: every value of a body, as the way there."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def with_odd(body: Any, path: tuple[str | int, ...], odd: bytes) -> bytes:
    """`body` as JSON, with `odd` for what stands at `path`, which need not be there."""
    return json.dumps(_changed(body, path, PLACE)).encode().replace(json.dumps(PLACE).encode(), odd)


def without(body: Any, path: tuple[str | int, ...]) -> bytes:
    return json.dumps(_changed(body, path, None, drop=True)).encode()


def twice(body: Any, path: tuple[str | int, ...], odd: bytes) -> bytes:
    """`body` with a field that is there two times, the second time as `odd`."""
    name = f'"{path[-1]}2": '
    holder = _changed(body, (*path[:-1], f"{path[-1]}2"), PLACE)
    raw = json.dumps(holder).encode().replace(json.dumps(PLACE).encode(), odd)
    return raw.replace(name.encode(), f'"{path[-1]}": '.encode())


def any_json(random: Random, depth: int = 4) -> Any:
    """A value as no schema would have it."""
    kinds = "nbifssse" if depth == 0 else "nbifsselllooo"
    match random.choice(kinds):
        case "n":
            return None
        case "b":
            return random.random() < 0.5
        case "i":
            return random.choice([0, 1, -1, 7, 2**31, 2**63, -(2**63) - 1, 10**30])
        case "f":
            return random.choice([0.0, -0.0, 0.5, 1e308, 5e-324, -1.5])
        case "e":
            return ""
        case "l":
            return [any_json(random, depth - 1) for _ in range(random.randrange(4))]
        case "o":
            names = ["type", "text", "role", "content", "name", "id", "parts", "function", "a", "\ud83c"]
            return {random.choice(names): any_json(random, depth - 1) for _ in range(random.randrange(5))}
    return random.choice(["x", "text", "user", "assistant", "\ud83d", "a\0", "\u2028", "é" * 50, "<|end|>"])


def _changed(body: Any, path: tuple[str | int, ...], value: Any, *, drop: bool = False) -> Any:
    changed = json.loads(json.dumps(body))
    at = changed
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed
