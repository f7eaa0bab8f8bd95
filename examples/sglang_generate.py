"""SGLang's `/generate` with plain HTTP: token counts in `meta_info`, salts, a flush, and why a token was not cached.

sapwood serve
python examples/sglang_generate.py [http://127.0.0.1:8000] [--key KEY]
"""

from __future__ import annotations

from typing import Any

import httpx
from demo import Table, called_with, rules


def main() -> None:
    server = called_with(__doc__)
    client = httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, timeout=120)
    table = Table("prompt", "cached", "")

    def ask(step: str, text: str, **more: Any) -> None:
        body = {"text": text, "sampling_params": {"max_new_tokens": 1}, **more}
        answer = client.post("/generate", json=body).raise_for_status()
        told = answer.json()["meta_info"]
        # Sapwood's own header, on every route of every dialect: reused=…;missed=…;then each reason.
        why = answer.headers["x-sapwood-cache"].split(";")[2:]
        table.row(step, told["prompt_tokens"], told["cached_tokens"], "  " + " ".join(why))

    text = rules(20)
    ask("1 the first time", text)
    ask("2 again", text)
    ask("3 gone on with", text + "\nMay the lights stay on?")
    ask("4 with a change in rule 10", text.replace("Rule 10", "Rule X"))
    ask("5 under a salt", text, cache_salt="team-b")
    client.get("/flush_cache").raise_for_status()
    ask("6 after a flush", text)


if __name__ == "__main__":
    main()
