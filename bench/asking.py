"""A server that is asked: what is wanted, said in its own dialect. Always greedy, always streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .answers import Answer, read_answer
from .client import Address, exchange
from .errors import BenchError

Dialect = Literal["sapwood", "llama.cpp", "openai"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt (ids, text or a conversation) and how many tokens to generate: exactly that many.

    Attributes:
        reuse: False asks for a cold answer; not every dialect has a word for it, so call `Server.forget` too.
        logprobs: whether each token's logprob is wanted; for ids and text only.
    """

    prompt: tuple[int, ...] | str | tuple[Message, ...]
    max_tokens: int
    reuse: bool = True
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Server:
    """Attributes:
    model: the name that it goes by in the server's own API.
    pid: of a server that we started.
    """

    name: str
    address: Address
    dialect: Dialect
    model: str
    pid: int | None = None

    async def ask(self, ask: Ask) -> Answer:
        """Raises BenchError, also for an answer of another length than asked for."""
        call = _llama_call(ask) if self.dialect == "llama.cpp" else _openai_call(self, ask)
        answer = read_answer(await exchange(self.address, "POST", call.path, call.body))
        if answer.completion_tokens not in (None, ask.max_tokens):
            raise BenchError(
                f"{self.name} generated {answer.completion_tokens} tokens; {ask.max_tokens} were asked for"
            )
        return answer

    async def forget(self) -> bool:
        """Make what was asked so far cold, if the server can; llama.cpp is told with each request instead."""
        if self.dialect == "sapwood":
            await exchange(self.address, "POST", "/flush_cache")
        return self.dialect != "openai"


def is_conversation(prompt: tuple[int, ...] | str | tuple[Message, ...]) -> bool:
    return not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Message)


def _openai_call(server: Server, ask: Ask) -> Call:
    body: dict[str, Any] = {
        "model": server.model,
        "max_tokens": ask.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        # No end token can be drawn, as under llama.cpp's ignore_eos: both go on with the same kind of text.
        "min_tokens": ask.max_tokens,
    }
    if server.dialect == "openai":
        body["ignore_eos"] = True  # some know only this
    if is_conversation(ask.prompt):
        return Call("/v1/chat/completions", {**body, "messages": _messages(ask.prompt)})
    if ask.logprobs:
        body["logprobs"] = 1
    return Call("/v1/completions", {**body, "prompt": _plain(ask.prompt)})


def _llama_call(ask: Ask) -> Call:
    body: dict[str, Any] = {
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
        "cache_prompt": ask.reuse,
    }
    if is_conversation(ask.prompt):
        # Its own route takes no conversation; its chat route speaks OpenAI's dialect and these fields too.
        body |= {"max_tokens": ask.max_tokens, "stream_options": {"include_usage": True}}
        return Call("/v1/chat/completions", {**body, "messages": _messages(ask.prompt)})
    if ask.logprobs:
        body["n_probs"] = 1
    return Call("/completion", {**body, "n_predict": ask.max_tokens, "prompt": _plain(ask.prompt)})


def _plain(prompt: Sequence[Any] | str) -> list[Any] | str:
    return prompt if isinstance(prompt, str) else list(prompt)


def _messages(prompt: Sequence[Any] | str) -> list[dict[str, str]]:
    return [
        {"role": message.role, "content": message.content}
        for message in prompt
        if isinstance(message, Message)
    ]
