"""Arrays: model files, weights, kernels, pages, and the runner that carries out a step's plan."""

from __future__ import annotations

from sapwood.model.checkpoint import VocabSource
from sapwood.model.fake import FakeRunner
from sapwood.model.loading import Model, choose_ops, load_model
from sapwood.model.pull import resolve
from sapwood.model.runner import ModelRunner

__all__ = ["FakeRunner", "Model", "ModelRunner", "VocabSource", "choose_ops", "load_model", "resolve"]
