"""Ollama's client: its replies have no field for what was cached; the time to read a prompt tells it, and a header.

sapwood serve
python examples/ollama_cache.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

import httpx
import ollama
from demo import Table, called_with, rules


def main() -> None:
    server = called_with(__doc__)
    reused: list[str] = []

    def note(response: httpx.Response) -> None:
        # Sapwood's own header, on every route of every dialect: reused=…;missed=…;then each reason.
        reused[:] = [response.headers.get("x-sapwood-cache", "reused=").split(";")[0].removeprefix("reused=")]

    client = ollama.Client(
        host=server.url,
        headers={"authorization": f"Bearer {server.key}"},
        event_hooks={"response": [note]},
    )
    table = Table("prompt", "reused", "in ms")

    def ask(step: str, system: str, question: str) -> None:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        options: Any = {"num_predict": 1}
        answer = client.chat(model=model, messages=messages, options=options)
        assert answer.prompt_eval_duration is not None
        table.row(step, answer.prompt_eval_count, *reused, round(answer.prompt_eval_duration / 1e6))

    model, text = server.model, rules(20)
    ask("1 the first time", text, "May the lights of room 7 stay on?")
    ask("2 again", text, "May the lights of room 7 stay on?")
    ask("3 another question", text, "Who may enter room 9?")
    ask("4 a change in the first rule", text.replace("Rule 0", "Rule X"), "Who may enter room 9?")


if __name__ == "__main__":
    main()
