"""One input, many questions: what the model thinks of each answer, and how little of the prompts is computed.

    sapwood serve
    python examples/decisions.py [http://127.0.0.1:8000] [--key KEY]

Asked a second time, with another question beside, the input is read from the cache.
"""

from __future__ import annotations

from typing import Any

import openai
from demo import called_with

REPORT = """From: Anna
The web shop has been down since this morning and customers cannot pay. The database reports that its disk is full.
Please fix it now!
"""
QUESTIONS: list[Any] = [
    {"type": "predicate", "name": "urgent", "instructions": "Is this message urgent?"},
    {
        "type": "choice",
        "name": "team",
        "instructions": "Who is to see to it?",
        "choices": [
            {"value": "ops", "description": "computers"},
            {"value": "hr", "description": "people"},
        ],
    },
    {
        "type": "score",
        "name": "tone",
        "instructions": "How does it sound?",
        "levels": [{"label": "calm"}, {"label": "angry"}],
    },
]
MORE: Any = {"type": "predicate", "name": "shop", "instructions": "The message is about a web shop."}


def main() -> None:
    server = called_with(__doc__)
    client, model = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key), server.model
    for questions in (QUESTIONS, [*QUESTIONS, MORE]):
        reply = client.decisions.with_raw_response.create(model=model, input=REPORT, questions=questions)
        decision = reply.parse()
        for answer in decision.answers:
            print(f"{answer.name}: {told(answer)}")
        # reused=…;missed=…;… over all prompts: one for each answer that was weighed.
        cost = dict(field.split("=") for field in reply.headers["x-sapwood-cache"].split(";"))
        prompts = int(cost["reused"]) + int(cost["missed"])
        usage = decision.usage
        print(f"prompts of {prompts} tokens, {cost['missed']} of them computed")
        print(
            f"input of {usage.input_tokens} tokens, {usage.input_tokens_details.cached_tokens} of them cached"
        )


def told(answer: Any) -> str:
    if answer.type == "predicate":
        return f"{answer.probability:.3f}"
    if answer.type == "choice":
        return ", ".join(f"{each.value} {each.probability:.3f}" for each in answer.probabilities)
    return f"{answer.score:.3f} of {len(answer.probabilities) - 1}"


if __name__ == "__main__":
    main()
