"""Gemini's caching: by itself, and by an object that has a name and a life of its own.

sapwood serve --step-ledger-clock
python examples/gemini_cache.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

from demo import MINUTE, Table, called_with, rules
from google import genai
from google.genai import errors


def main() -> None:
    server = called_with(__doc__)
    client = genai.Client(api_key=server.key, http_options={"base_url": server.url})
    table = Table("prompt", "cached")

    def ask(step: str, contents: Any, **config: Any) -> None:
        options: Any = {"max_output_tokens": 1, **config}
        usage = client.models.generate_content(model=model, contents=contents, config=options).usage_metadata
        assert usage is not None
        # Where nothing was cached the number is not there at all.
        table.row(step, usage.prompt_token_count, usage.cached_content_token_count or 0)

    model, text, question = server.model, rules(), "May the lights of room 7 stay on?"
    print("implicit: what is there is told, from 1,024 tokens on")
    ask("1 the first time", [text, question])
    ask("2 again", [text, question])
    ask("3 with a change in rule 50: up to there", [text.replace("Rule 50", "Rule X"), question])

    print("\nexplicit: what was made is told as cached until it expires, whatever else is asked")
    config: Any = {"contents": text, "ttl": "300s", "display_name": "house"}
    made = client.caches.create(model=model, config=config)
    assert made.name is not None
    assert made.usage_metadata is not None
    table.row("1 made, for five minutes", made.usage_metadata.total_token_count, "-")
    ask("2 asked about", question, cached_content=made.name)
    server.pass_time(4 * MINUTE)
    ask("3 four minutes later", question, cached_content=made.name)
    client.caches.update(name=made.name, config={"ttl": "600s"})
    server.pass_time(9 * MINUTE)
    ask("4 renewed for ten, nine minutes later", question, cached_content=made.name)
    server.pass_time(2 * MINUTE)
    try:
        ask("5 two more", question, cached_content=made.name)
    except errors.ClientError as error:
        table.row("5 two more: it has expired", error.code, f"  {error.message}")


if __name__ == "__main__":
    main()
