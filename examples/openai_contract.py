"""OpenAI's chat completions by OpenAI's rules: first the automatic ones, then those of breakpoints.

sapwood serve --step-ledger-clock --ledger contract
python examples/openai_contract.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

import openai
from demo import MINUTE, Table, called_with, rules

BREAKPOINTS: Any = {"mode": "explicit"}


def main() -> None:
    server = called_with(__doc__)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key)
    table = Table("prompt", "written", "read")

    def ask(step: str, text: Any, question: str = "Who may stay?", **options: Any) -> None:
        parts = [text, {"type": "text", "text": question}]
        usage = client.chat.completions.create(
            model=model, max_tokens=1, messages=[{"role": "user", "content": parts}], **options
        ).usage
        assert usage is not None
        details = usage.prompt_tokens_details
        assert details is not None
        table.row(step, usage.prompt_tokens, details.cache_write_tokens, details.cached_tokens)

    model, text = server.model, {"type": "text", "text": rules()}
    print("automatic: from 1,024 tokens on, in steps of 128; nothing is charged for writing")
    ask("1 the first time", text)
    ask("2 again", text)
    ask("3 with a change in rule 50: up to there", changed(text))
    ask("4 with another prompt_cache_key", text, prompt_cache_key="somebody-else")
    server.pass_time(11 * MINUTE)
    ask("5 after eleven idle minutes", text)
    server.pass_time(11 * MINUTE)

    print("\nbreakpoints: what lies before one is written and read, to the token")
    marked = {**text, "prompt_cache_breakpoint": {"mode": "explicit"}}
    ask("1 the first time", marked, prompt_cache_options=BREAKPOINTS)
    ask("2 another question", marked, "May the lights stay on?", prompt_cache_options=BREAKPOINTS)
    server.pass_time(31 * MINUTE)
    ask("3 after half an hour", marked, prompt_cache_options=BREAKPOINTS)
    ask("4 with a change before it", changed(marked), prompt_cache_options=BREAKPOINTS)


def changed(part: Any) -> Any:
    return {**part, "text": part["text"].replace("Rule 50", "Rule X")}


if __name__ == "__main__":
    main()
