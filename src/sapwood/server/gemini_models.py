"""How the Gemini dialect describes the model."""

from __future__ import annotations

from sapwood.chat import Json
from sapwood.server.ports import Facts

METHODS = ("generateContent", "countTokens", "createCachedContent")


def gemini_model(name: str, facts: Facts) -> Json:
    """The model in the dialect's words."""
    return {
        "name": f"models/{name}",
        "version": facts.fingerprint[:16],
        "displayName": name,
        "inputTokenLimit": facts.max_context,
        "outputTokenLimit": facts.max_context,
        "supportedGenerationMethods": list(METHODS),
        "temperature": facts.sampling.temperature,
        "maxTemperature": 2.0,
        "topP": facts.sampling.top_p,
        "topK": facts.sampling.top_k,
    }
