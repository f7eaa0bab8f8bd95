"""Serves plain transformers: `generate`, one request after the other; run by the Python that has torch."""

from __future__ import annotations

import argparse
import queue
import sys
from pathlib import Path
from typing import Any

from .shim import Job, Piece, make_server
from .texts import FolderTexts


class Model:
    def __init__(self, folder: Path, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._torch, self._transformers = torch, transformers
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def run(self, jobs: queue.SimpleQueue[Job]) -> None:
        while True:
            job = jobs.get()
            try:
                self._answer(job)
            except Exception as error:
                job.pieces.put(error)

    def flush(self) -> None:
        """Nothing is kept."""

    def _answer(self, job: Job) -> None:
        ids = self._torch.tensor([list(job.prompt)])
        options: dict[str, Any] = {"max_new_tokens": job.max_tokens, "pad_token_id": 0}
        if job.exact_length:
            options["min_new_tokens"] = job.max_tokens
        if job.temperature > 0:
            self._transformers.set_seed(job.seed)
            options |= {"do_sample": True, "temperature": job.temperature, "top_k": 0}
        else:
            options["do_sample"] = False
        alone = job.samples == 1
        if alone:
            options["streamer"] = _Streamer(job)
        with self._torch.inference_mode():
            out = self._model.generate(
                ids, attention_mask=self._torch.ones_like(ids), num_return_sequences=job.samples, **options
            )
        for index, row in enumerate(out.tolist()):
            rest = [] if alone else row[len(job.prompt) :]
            job.pieces.put(Piece(index, rest, (), "length"))


class _Streamer:
    """What `generate` calls with the prompt first and then with each token."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began = False

    def put(self, ids: Any) -> None:
        if self._began:
            self._job.pieces.put(Piece(0, ids.reshape(-1).tolist()))
        self._began = True

    def end(self) -> None:
        """The last piece follows from the outside."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    model = Model(options.model, options.threads)
    make_server(options.port, model, FolderTexts(options.model)).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
