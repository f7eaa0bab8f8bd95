"""Anthropic's prompt caching: `cache_control` marks how far a prompt is worth keeping, for five minutes or an hour.

sapwood serve --step-ledger-clock
python examples/anthropic_cache.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

import anthropic
from demo import MINUTE, Table, called_with, rules

KEEP: Any = {"type": "ephemeral"}  # for five minutes after its last use; with "ttl": "1h" for an hour
LAMP: Any = {
    "name": "lamp",
    "description": "Switches the lamp of a room.",
    "input_schema": {
        "type": "object",
        "properties": {"room": {"type": "integer"}, "on": {"type": "boolean"}},
    },
}


def main() -> None:
    server = called_with(__doc__)
    # The key goes into `x-api-key`; the base URL has no /v1.
    client = anthropic.Anthropic(base_url=server.url, api_key=server.key)
    table = Table("new", "written", "read")

    def ask(step: str, **changes: Any) -> None:
        """One question, about rules that are marked to be kept, and so is the question."""
        question = {"type": "text", "text": "May the lights of room 7 stay on?", "cache_control": KEEP}
        options: Any = {
            "model": model,
            "max_tokens": 1,
            "tools": [LAMP],
            "system": [{"type": "text", "text": text, "cache_control": KEEP}],
            "messages": [{"role": "user", "content": [question]}],
        }
        usage = client.messages.create(**{**options, **changes}).usage
        table.row(
            step,
            usage.input_tokens,  # of the prompt, what comes after the last mark
            usage.cache_creation_input_tokens,
            usage.cache_read_input_tokens,
        )

    model, text = server.model, rules()
    ask("1 the first time")
    ask("2 again")
    server.pass_time(4 * MINUTE)
    ask("3 four minutes later")
    server.pass_time(4 * MINUTE)
    ask("4 four more: each use starts the five anew")
    server.pass_time(6 * MINUTE)
    ask("5 six minutes later it has expired")
    ask("6 another tool_choice: the question goes", tool_choice={"type": "none"})
    ask("7 another tool: all goes", tools=[{**LAMP, "description": "Switches a lamp."}])


if __name__ == "__main__":
    main()
