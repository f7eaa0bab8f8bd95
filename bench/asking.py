"""A server that is asked: what is wanted, said in its own dialect. Greedy unless samples are wanted; streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .answers import Answer, read_answer
from .client import Address, exchange
from .errors import BenchError
from .prompts import Form

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
        samples: answers to the one prompt.
        seed: of the draws, where the temperature is above 0.
    """

    prompt: tuple[int, ...] | str | tuple[Message, ...]
    max_tokens: int
    reuse: bool = True
    logprobs: bool = False
    samples: int = 1
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an OpenAI-compatible server understands beyond the least.

    Attributes:
        length: the fields that keep it from stopping early.
        usage: whether it tells counts in a stream.
        samples: whether `n` draws several answers.
        forget: the route that empties its cache.
        exact: whether a shorter answer is an error; else it is only counted.
    """

    form: Form = "ids"
    length: tuple[str, ...] = ("min_tokens",)
    usage: bool = True
    samples: bool = True
    forget: str | None = None
    exact: bool = True


@dataclass(slots=True)
class Tally:
    """Tokens asked for and generated so far."""

    wanted: int = 0
    generated: int = 0


class Process(Protocol):
    """A server that we started."""

    def pids(self) -> Sequence[int]:
        """Of it and of its children."""
        ...

    async def restart(self) -> None: ...

    def forget_peak(self) -> None:
        """`peak_memory` speaks of the time since."""
        ...

    def peak_memory(self) -> int | None:
        """Bytes that it and its children held at most; None where the system does not tell."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """Attributes:
    model: the name that it goes by in the server's own API.
    process: of a server that we started.
    setting: which of several ways to start it this is.
    """

    name: str
    address: Address
    dialect: Dialect
    model: str
    process: Process | None = None
    abilities: Abilities = field(default_factory=Abilities)
    setting: str = ""
    tally: Tally = field(default_factory=Tally, compare=False)

    async def ask(self, ask: Ask) -> Answer:
        """Raises BenchError, also for an answer of another length than asked for."""
        call = _llama_call(ask) if self.dialect == "llama.cpp" else _openai_call(self, ask)
        answer = read_answer(await exchange(self.address, "POST", call.path, call.body))
        wanted = ask.max_tokens * ask.samples
        if answer.completion_tokens not in (None, wanted) and self.abilities.exact:
            raise BenchError(
                f"{self.name} generated {answer.completion_tokens} tokens; {wanted} were asked for"
            )
        self._check_prompt(ask, answer)
        self.tally.wanted += wanted
        self.tally.generated += answer.tokens
        return answer

    def _check_prompt(self, ask: Ask, answer: Answer) -> None:
        """Equal ids must be equal prompts: nothing may be put before them."""
        told, given = answer.prompt_tokens, ask.prompt
        if isinstance(given, str) or is_conversation(given) or not self.abilities.exact:
            return
        if told not in (None, len(given)):
            raise BenchError(f"{self.name} read {told} prompt tokens; {len(given)} were sent")

    async def forget(self) -> bool:
        """Make what was asked so far cold, if the server can; llama.cpp is told with each request instead."""
        if self.abilities.forget is not None:
            await exchange(self.address, "POST", self.abilities.forget)
        return self.abilities.forget is not None or self.dialect == "llama.cpp"


def is_conversation(prompt: tuple[int, ...] | str | tuple[Message, ...]) -> bool:
    return not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Message)


def _openai_call(server: Server, ask: Ask) -> Call:
    able = server.abilities
    body: dict[str, Any] = {"model": server.model, "max_tokens": ask.max_tokens, "stream": True}
    body |= _sampling(ask)
    if able.usage:
        body["stream_options"] = {"include_usage": True}
    # With min_tokens no end token can be drawn, as under llama.cpp's ignore_eos: both go on with such text.
    lengths: Mapping[str, Any] = {"min_tokens": ask.max_tokens, "ignore_eos": True}
    body |= {field: lengths[field] for field in able.length}
    if is_conversation(ask.prompt):
        return Call("/v1/chat/completions", {**body, "messages": _messages(ask.prompt)})
    if able.form == "chat":
        only = (Message("user", str(ask.prompt)),)
        return Call("/v1/chat/completions", {**body, "messages": _messages(only)})
    if ask.logprobs:
        body["logprobs"] = 1
    return Call("/v1/completions", {**body, "prompt": _plain(ask.prompt)})


def _llama_call(ask: Ask) -> Call:
    body: dict[str, Any] = {"stream": True, "ignore_eos": True, "cache_prompt": ask.reuse}
    body |= _sampling(ask)
    usage = {"max_tokens": ask.max_tokens, "stream_options": {"include_usage": True}}
    if is_conversation(ask.prompt):
        # Its own route takes no conversation; its chat route speaks OpenAI's dialect and these fields too.
        return Call("/v1/chat/completions", {**body, **usage, "messages": _messages(ask.prompt)})
    if ask.samples > 1:
        return Call("/v1/completions", {**body, **usage, "prompt": _plain(ask.prompt)})
    if ask.logprobs:
        body["n_probs"] = 1
    return Call("/completion", {**body, "n_predict": ask.max_tokens, "prompt": _plain(ask.prompt)})


def _sampling(ask: Ask) -> dict[str, Any]:
    if ask.temperature == 0:
        return {"temperature": 0}
    return {"temperature": ask.temperature, "top_p": 1.0, "n": ask.samples, "seed": ask.seed}


def _plain(prompt: Sequence[Any] | str) -> list[Any] | str:
    return prompt if isinstance(prompt, str) else list(prompt)


def _messages(prompt: Sequence[Any] | str) -> list[dict[str, str]]:
    return [
        {"role": message.role, "content": message.content}
        for message in prompt
        if isinstance(message, Message)
    ]
