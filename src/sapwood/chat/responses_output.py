"""An answer's output items as they grow; every change is told as the events of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sapwood.chat.messages import parsed_object
from sapwood.chat.openai_render import Json
from sapwood.chat.responses_items import sealed

Kind = Literal["message", "reasoning", "function_call"]

_PREFIXES: Mapping[Kind, str] = MappingProxyType({"message": "msg", "reasoning": "rs", "function_call": "fc"})


@dataclass(slots=True)
class _Open:
    """The item that is being written."""

    kind: Kind
    id: str
    index: int
    head: Json = field(default_factory=dict)
    """Of a call: its name and id."""
    texts: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def place(self) -> Json:
        return {"item_id": self.id, "output_index": self.index}


class Output:
    """Events lack their `sequence_number`. `stem` makes the ids of items; `seal` also gives reasoning sealed."""

    def __init__(self, stem: str, *, seal: bool) -> None:
        self._stem, self._seal = stem, seal
        self._open: _Open | None = None
        self.items: list[Json] = []
        """Those that are complete."""

    @property
    def empty(self) -> bool:
        """Nothing has been said, thought or called."""
        return not self.items and self._open is None

    def say(self, text: str, logprobs: Sequence[Json] = ()) -> list[Json]:
        """The answer goes on with a text, whose tokens have these logprobs."""
        events, item = self._at("message")
        item.texts.append(text)
        item.logprobs += logprobs
        delta = {**item.place, "content_index": 0, "delta": text, "logprobs": list(logprobs)}
        return [*events, {"type": "response.output_text.delta", **delta}]

    def think(self, text: str) -> list[Json]:
        events, item = self._at("reasoning")
        item.texts.append(text)
        delta = {**item.place, "content_index": 0, "delta": text}
        return [*events, {"type": "response.reasoning_text.delta", **delta}]

    def begin_call(self, id: str, name: str) -> list[Json]:
        events = self.close()
        self._open = _Open("function_call", self._new_id("function_call"), len(self.items))
        self._open.head = {"call_id": id, "name": name}
        return [*events, self._added(self._open)]

    def argue(self, text: str) -> list[Json]:
        """The call that was begun last goes on with a part of its arguments."""
        assert self._open is not None, "a call is begun"
        self._open.texts.append(text)
        return [{"type": "response.function_call_arguments.delta", **self._open.place, "delta": text}]

    def end_call(self) -> list[Json]:
        """The call that was begun last is over; if its arguments are no JSON object, it was cut short."""
        assert self._open is not None, "a call is begun"
        whole = parsed_object(self._open.text) is not None
        return self.close("completed" if whole else "incomplete")

    def close(self, status: str = "completed") -> list[Json]:
        """Nothing more comes for the item that is being written, if one is."""
        item, self._open = self._open, None
        if item is None:
            return []
        done = self._item(item, status)
        self.items.append(done)
        return [
            *self._last(item),
            {"type": "response.output_item.done", "output_index": item.index, "item": done},
        ]

    def _at(self, kind: Kind) -> tuple[list[Json], _Open]:
        """The open item, which is of this kind; the events if it had to be opened."""
        if self._open is not None and self._open.kind == kind:
            return [], self._open
        events = self.close()
        opened = _Open(kind, self._new_id(kind), len(self.items))
        self._open = opened
        part = {"content_index": 0, "part": self._part(opened)}
        added = {"type": "response.content_part.added", **opened.place, **part}
        return [*events, self._added(opened), added], opened

    def _added(self, item: _Open) -> Json:
        bare = self._item(_Open(item.kind, item.id, item.index, item.head), "in_progress")
        if item.kind != "function_call":
            bare["content"] = []
        bare.pop("encrypted_content", None)
        return {"type": "response.output_item.added", "output_index": item.index, "item": bare}

    def _last(self, item: _Open) -> list[Json]:
        """What is told of an item's text when it is all there."""
        if item.kind == "function_call":
            done = {**item.place, "name": item.head["name"], "arguments": item.text}
            return [{"type": "response.function_call_arguments.done", **done}]
        place = {**item.place, "content_index": 0}
        part = {"type": "response.content_part.done", **place, "part": self._part(item)}
        if item.kind == "reasoning":
            return [{"type": "response.reasoning_text.done", **place, "text": item.text}, part]
        done = {**place, "text": item.text, "logprobs": list(item.logprobs)}
        return [{"type": "response.output_text.done", **done}, part]

    def _item(self, item: _Open, status: str) -> Json:
        told: Json = {"id": item.id, "type": item.kind, "status": status}
        if item.kind == "function_call":
            return {**told, **item.head, "arguments": item.text}
        told["content"] = [self._part(item)]
        if item.kind == "message":
            return {**told, "role": "assistant"}
        told["summary"] = []
        return {**told, "encrypted_content": sealed(item.text)} if self._seal else told

    def _part(self, item: _Open) -> Json:
        if item.kind == "reasoning":
            return {"type": "reasoning_text", "text": item.text}
        logprobs = list(item.logprobs)
        return {"type": "output_text", "text": item.text, "annotations": [], "logprobs": logprobs}

    def _new_id(self, kind: Kind) -> str:
        return f"{_PREFIXES[kind]}_{self._stem}_{len(self.items)}"
