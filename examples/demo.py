"""What the other scripts share: the server they are called with, its clock, a long text, and the table they print."""

from __future__ import annotations

import argparse
import secrets
import sys
from dataclasses import dataclass

import httpx

MINUTE = 60


@dataclass(frozen=True)
class Server:
    url: str
    key: str

    @property
    def model(self) -> str:
        """The name of the model that it serves."""
        return str(self._ask("GET", "/v1/models").json()["data"][0]["id"])

    def pass_time(self, seconds: float) -> None:
        """Puts the clock of the caching rules forward: nobody wants to wait an hour to see something expire."""
        answer = self._ask("POST", "/v1/ledgers/clock", {"advance": seconds})
        if answer.status_code == 404:
            sys.exit("the server's clock cannot be put forward: start it with --step-ledger-clock")
        if answer.status_code != 200:
            sys.exit(f"the server's clock was not put forward: {answer.text}")

    def _ask(self, method: str, path: str, body: dict[str, float] | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)


def called_with(what: str | None) -> Server:
    """The command line."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--key", default="none", help="of an operator, where the server has --api-keys")
    given = parser.parse_args()
    return Server(given.url.rstrip("/"), given.key)


def rules(count: int = 54) -> str:
    """A text of some 20 tokens for each rule (1,150 in all) that was never sent before."""
    lines = [f"The rules of house {secrets.token_hex(4)}:"]
    lines += [
        f"Rule {n}: whoever leaves room {n} turns off its lights and shuts the door." for n in range(count)
    ]
    return "\n".join(lines)


class Table:
    """Prints a line for each step, as it happens."""

    def __init__(self, *columns: str) -> None:
        self.row("", *columns)

    def row(self, step: str, *cells: object) -> None:
        print(f"{step:44}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
