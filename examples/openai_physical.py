"""OpenAI's chat completions, told as it is: `cached_tokens` is what was not computed. There are no rules to learn.

sapwood serve --step-ledger-clock
python examples/openai_physical.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

import openai
from demo import MINUTE, Table, called_with, rules


def main() -> None:
    server = called_with(__doc__)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key)
    table = Table("prompt", "computed", "cached")

    def ask(step: str, system: str, question: str) -> None:
        usage = client.chat.completions.create(
            model=model,
            max_tokens=1,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
        ).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        cached = usage.prompt_tokens_details.cached_tokens or 0
        table.row(step, usage.prompt_tokens, usage.prompt_tokens - cached, cached)

    model, text = server.model, rules(20)
    ask("1 the first time", text, "May the lights of room 7 stay on?")
    ask("2 again: all but the last token", text, "May the lights of room 7 stay on?")
    ask("3 another question: up to where it parts", text, "May the lights of room 9 stay on?")
    server.pass_time(24 * 60 * MINUTE)
    ask("4 a day later: it goes only for others", text, "May the lights of room 9 stay on?")
    ask("5 a change in rule 10", text.replace("Rule 10", "Rule X"), "May the lights of room 9 stay on?")


if __name__ == "__main__":
    main()
