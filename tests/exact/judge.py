"""Transformers as an independent judge of logits: the same file, its own reader, float32 on torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class Judge:
    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    @classmethod
    def of_folder(cls, folder: Path) -> Judge:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model)

    @classmethod
    def of_llama_gguf(cls, path: Path, layers: int) -> Judge:
        """What `from_pretrained(gguf_file=…)` does, less its need of `accelerate`; `layers` only names the tensors."""
        named = transformers.LlamaConfig(num_hidden_layers=layers, tie_word_embeddings=True)
        with torch.device("meta"):
            names = transformers.LlamaForCausalLM(named)
        read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=names)
        config = transformers.LlamaConfig(**read["config"])
        assert config.num_hidden_layers == layers
        tied = {"lm_head.weight": read["tensors"]["model.embed_tokens.weight"]}
        model = transformers.LlamaForCausalLM.from_pretrained(
            None, config=config, state_dict={**read["tensors"], **tied}, dtype=torch.float32
        )
        return cls(model)

    def logits(self, *prompts: Sequence[int]) -> list[NDArray[np.float32]]:
        """Of every position, [tokens, vocab_size] each. Shorter prompts are padded at their end, unseen by the rest."""
        longest = max(len(prompt) for prompt in prompts)
        tokens = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts])
        with torch.no_grad():
            rows = self.model(tokens).logits.numpy()
        return [row[: len(prompt)] for row, prompt in zip(rows, prompts, strict=True)]

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        with torch.no_grad():
            tokens = torch.tensor([list(prompt)])
            mask = torch.ones_like(tokens)
            out = self.model.generate(
                tokens, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count
            )
        found: list[int] = out[0, len(prompt) :].tolist()
        return found


def distance(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """The largest difference, relative to the largest logit."""
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())
