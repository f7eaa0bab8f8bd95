"""Tools in Ollama's words: calls have no ids there, and their arguments are objects, not text."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from sapwood.chat.body import Body, Text
from sapwood.chat.found_calls import FoundCall
from sapwood.chat.messages import ToolCall
from sapwood.chat.openai_tools import MAX_CALLS, MAX_DEPTH
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError


class CallBody(Body):
    """An entry of `tool_calls`."""

    class Function(Body):
        name: Text
        arguments: dict[str, Any] | None = None

    function: Function
    id: Text | None = None


class CallIds:
    """Gives the calls of a conversation ids, and each result that of the call that it answers."""

    def __init__(self) -> None:
        self._count = 0
        self._open: deque[ToolCall] = deque()

    def calls(self, bodies: Sequence[CallBody], path: str) -> tuple[ToolCall, ...]:
        """The calls of one message at `path`. Raises RequestError that names the offending field."""
        if len(bodies) > MAX_CALLS:
            raise RequestError(
                f"{path!r} has {len(bodies)} entries; at most {MAX_CALLS} are taken", param=path
            )
        made = tuple(self._made(body, f"{path}[{i}].function.arguments") for i, body in enumerate(bodies))
        self._open = deque(made)
        return made

    def result(self, name: str | None, id: str | None) -> str | None:
        """The id of the call that a result answers: the one it names, else the first that has none yet."""
        if id is not None:
            return id
        found = next((call for call in self._open if call.name == name), None)
        if found is None and name is None and self._open:
            found = self._open[0]
        if found is None:
            return None
        self._open.remove(found)
        return found.id

    def _made(self, body: CallBody, path: str) -> ToolCall:
        arguments = body.function.arguments or {}
        check_json(arguments, path, MAX_DEPTH)
        self._count += 1
        # Nine letters and digits, which is what Mistral's templates insist on.
        id = body.id or f"call{self._count:05d}"
        return ToolCall(id, body.function.name, json.dumps(arguments, ensure_ascii=False))


def call_json(call: FoundCall) -> dict[str, Any]:
    """A call of an answer, its arguments in the order in which they were written."""
    return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}
