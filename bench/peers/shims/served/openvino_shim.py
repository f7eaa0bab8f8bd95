"""Serves OpenVINO GenAI's ContinuousBatchingPipeline; run by the Python of its own environment."""

from __future__ import annotations

import argparse
import queue
import sys
from pathlib import Path
from typing import Any

from .shim import Job, Piece, make_server
from .texts import FolderTexts

CACHE_GIB = 1
BLOCK = 32
"""Tokens of one of its blocks on a CPU."""


class Pipeline:
    """One thread adds requests and steps; the library batches what is there."""

    def __init__(self, model: Path, threads: int, kv_tokens: int | None) -> None:
        import openvino
        import openvino_genai

        self._openvino, self._genai = openvino, openvino_genai
        self._model, self._threads, self._kv_tokens = model, threads, kv_tokens
        self._pipeline = self._load()
        self._running: dict[int, tuple[Job, Any]] = {}
        self._count = 0

    def run(self, jobs: queue.SimpleQueue[Job]) -> None:
        while True:
            if not self._running:
                self._begin(jobs.get())
            while not jobs.empty():
                self._begin(jobs.get())
            try:
                self._pipeline.step()
                self._hand_out()
            except Exception as error:
                for job, _ in self._running.values():
                    job.pieces.put(error)
                self._running.clear()

    def flush(self) -> None:
        """The library has no word for it: a new pipeline has an empty cache."""
        self._pipeline = self._load()

    def _load(self) -> Any:
        scheduler = self._genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.max_num_seqs = 16
        if self._kv_tokens is None:
            scheduler.cache_size = CACHE_GIB
        else:
            scheduler.num_kv_blocks = self._kv_tokens // BLOCK
        properties = {"INFERENCE_NUM_THREADS": self._threads}
        return self._genai.ContinuousBatchingPipeline(str(self._model), scheduler, "CPU", properties)

    def _begin(self, job: Job) -> None:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = job.max_tokens
        config.ignore_eos = job.exact_length
        config.num_return_sequences = job.samples
        config.logprobs = int(job.logprobs)
        config.apply_chat_template = False
        if job.temperature > 0:
            config.do_sample, config.temperature, config.rng_seed = True, job.temperature, job.seed
        try:
            ids = self._openvino.Tensor(_row(job.prompt))
            handle = self._pipeline.add_request(self._count, ids, config)
        except Exception as error:
            job.pieces.put(error)
            return
        self._running[self._count] = (job, handle)
        self._count += 1

    def _hand_out(self) -> None:
        for number, (job, handle) in list(self._running.items()):
            ended = handle.get_status() != self._genai.GenerationStatus.RUNNING
            while handle.can_read():
                for index, output in enumerate(handle.read().values()):
                    self._put(job, index, output)
            if ended:
                del self._running[number]

    def _put(self, job: Job, index: int, output: Any) -> None:
        reasons = self._genai.GenerationFinishReason
        finish = {reasons.STOP: "stop", reasons.LENGTH: "length"}.get(output.finish_reason)
        ids = list(output.generated_ids)
        logprobs = list(output.generated_log_probs)[-len(ids) :] if job.logprobs else ()
        job.pieces.put(Piece(index, ids, logprobs, finish))


def _row(prompt: Any) -> Any:
    import numpy as np

    return np.array([prompt], np.int64)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-tokens", type=int)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    pipeline = Pipeline(options.model, options.threads, options.kv_tokens)
    make_server(options.port, pipeline, FolderTexts(options.texts)).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
