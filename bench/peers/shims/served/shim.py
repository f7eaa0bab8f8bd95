"""OpenAI's completions and chats over HTTP for an engine that is only a library. Standard library alone.

As thin as can be: one thread for each connection, which puts a job into the engine's queue and writes what comes out.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol


@dataclass(frozen=True)
class Piece:
    """Tokens of one answer, as they come.

    Attributes:
        index: which of the job's answers.
        finish: why it ended, with its last piece.
    """

    index: int
    ids: Sequence[int]
    logprobs: Sequence[float] = ()
    finish: str | None = None


@dataclass
class Job:
    """Attributes:
    pieces: what the engine puts there; an exception where it fails.
    """

    prompt: Sequence[int]
    max_tokens: int
    exact_length: bool
    samples: int
    temperature: float
    seed: int
    logprobs: bool
    pieces: queue.SimpleQueue[Piece | Exception] = field(default_factory=queue.SimpleQueue)

    def results(self) -> Iterator[Piece]:
        """Until each answer has finished. Raises what the engine raised."""
        open_answers = self.samples
        while open_answers:
            piece = self.pieces.get()
            if isinstance(piece, Exception):
                raise piece
            open_answers -= piece.finish is not None
            yield piece


class Engine(Protocol):
    def run(self, jobs: queue.SimpleQueue[Job]) -> None:
        """For ever, on a thread of its own: takes jobs and answers them."""
        ...

    def flush(self) -> None:
        """Forget all prefixes; called while nothing runs."""
        ...


class Texts(Protocol):
    def encode(self, text: str) -> Sequence[int]: ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> Sequence[int]:
        """The ids of a conversation, up to where its next answer begins."""
        ...

    def decoder(self) -> Callable[[Sequence[int]], str]:
        """For one answer: its next tokens → the text that is complete by now."""
        ...


class Wrong(Exception):
    """The request cannot be served; status 400."""


def read_job(body: Mapping[str, Any], texts: Texts) -> Job:
    """Raises Wrong."""
    try:
        return Job(
            prompt=_prompt(body, texts),
            max_tokens=int(body.get("max_tokens") or 16),
            exact_length=bool(body.get("ignore_eos") or body.get("min_tokens")),
            samples=int(body.get("n") or 1),
            temperature=float(body.get("temperature", 1.0)),
            seed=int(body.get("seed") or 0),
            logprobs=body.get("logprobs") not in (None, False),
        )
    except (TypeError, ValueError) as error:
        raise Wrong(str(error)) from error


def _prompt(body: Mapping[str, Any], texts: Texts) -> Sequence[int]:
    if "messages" in body:
        return texts.chat(body["messages"])
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return texts.encode(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    raise Wrong("'prompt' must be a text or a list of token ids")


def make_server(port: int, engine: Engine, texts: Texts) -> ThreadingHTTPServer:
    """Listens on 127.0.0.1; the engine's thread is started too."""
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=engine.run, args=(jobs,), daemon=True).start()

    class Handler(_Handler):
        pass

    Handler.engine, Handler.texts, Handler.jobs = engine, texts, jobs
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    engine: Engine
    texts: Texts
    jobs: queue.SimpleQueue[Job]
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: it would only take time."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {})
        elif self.path == "/v1/models":
            self._json(200, {"data": [{"id": "model"}]})
        else:
            self._json(404, {"error": {"message": f"there is no {self.path}"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/flush_cache":
            self.engine.flush()
            self._json(200, {})
        elif self.path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(raw)
        else:
            self._json(404, {"error": {"message": f"there is no {self.path}"}})

    def _generate(self, raw: bytes) -> None:
        try:
            job = read_job(json.loads(raw), self.texts)
        except (Wrong, ValueError) as error:
            self._json(400, {"error": {"message": str(error)}})
            return
        self.jobs.put(job)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            for event in events(job, self.texts, chat="chat" in self.path):
                self._event(event)
        except Exception as error:  # the head is sent; the stream must say it
            self._event({"error": {"message": f"{type(error).__name__}: {error}"}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, event: Mapping[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _json(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def events(job: Job, texts: Texts, *, chat: bool) -> Iterator[Mapping[str, Any]]:
    """Chunks in OpenAI's shape, the usage last."""
    decoders = [texts.decoder() for _ in range(job.samples)]
    generated = 0
    for piece in job.results():
        generated += len(piece.ids)
        text = decoders[piece.index](piece.ids)
        said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        if job.logprobs and not chat:
            said["logprobs"] = {"token_logprobs": list(piece.logprobs)}
        yield {"choices": [{"index": piece.index, "finish_reason": piece.finish, **said}]}
    usage = {"prompt_tokens": len(job.prompt), "completion_tokens": generated}
    yield {"choices": [], "usage": usage}
