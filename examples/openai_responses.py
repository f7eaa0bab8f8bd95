"""OpenAI's responses: one is gone on from by its id, read ahead before anyone asks, and explains why it missed.

sapwood serve --step-ledger-clock --ledger contract
python examples/openai_responses.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

import openai
from demo import MINUTE, Table, called_with, rules


def main() -> None:
    server = called_with(__doc__)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key)
    table = Table("input", "written", "read", "")

    def ask(step: str, text: str, before: Any = None, *, prewarm: bool = False, **options: Any) -> Any:
        # In implicit mode the end of each user message is a boundary, for half an hour ("ttl": "12h" for longer).
        cache: Any = {"mode": "implicit", "prewarm": prewarm}
        if before is not None:
            cache["comparison_response_id"] = before.id
        response = client.responses.create(
            model=model, input=text, max_output_tokens=1, prompt_cache_options=cache, **options
        )
        assert response.usage is not None
        details, why = response.usage.input_tokens_details, response.prompt_cache_diagnostics
        told = "" if why is None else "  " + getattr(why, "reason", why.type)
        table.row(step, response.usage.input_tokens, details.cache_write_tokens, details.cached_tokens, told)
        return response

    model, text = server.model, rules()
    first = ask("1 read ahead", text, prewarm=True)
    first = ask("2 asked", text, first)
    ask("3 gone on from", "And room 9?", previous_response_id=first.id)
    server.pass_time(29 * MINUTE)
    ask("4 within half an hour", text, first)
    server.pass_time(31 * MINUTE)
    ask("5 and after it: expired", text, first)
    ask("6 with another effort", text, first, reasoning={"effort": "low"})
    ask("7 with a change in rule 50", text.replace("Rule 50", "Rule X"), first)


if __name__ == "__main__":
    main()
