"""Arrays: model files, weights, kernels, pages, and the runner that carries out a step's plan."""

from __future__ import annotations

from sapwood.model.checkpoint import VocabSource, load_checkpoint
from sapwood.model.loading import Model, choose_ops, load_model
from sapwood.model.pull import check_name, resolve
from sapwood.model.runner import ModelRunner

__all__ = [
    "Model",
    "ModelRunner",
    "VocabSource",
    "check_name",
    "choose_ops",
    "load_checkpoint",
    "load_model",
    "resolve",
]
