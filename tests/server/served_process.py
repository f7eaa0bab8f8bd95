"""A served process over the fake model, for tests that send it signals: `python -m server.served_process`."""

from __future__ import annotations

import sys
import time

from sapwood.config import ServerConfig
from sapwood.errors import ModelError
from sapwood.server import Server
from server.fakes import build_fake


def main(mode: str) -> None:
    built = build_fake()
    built.runner.hook = lambda _: time.sleep(0.02) or frozenset()  # type: ignore[func-returns-value]

    def load() -> object:
        if mode == "broken":
            raise ModelError("the file is cut")
        if mode == "slow":
            print("loading", flush=True)
            while not server.stopping:
                time.sleep(0.01)
            raise ModelError("gave up")
        return built

    server = Server(load, ServerConfig(port=0), lambda line: print(line, flush=True))  # type: ignore[arg-type]
    try:
        server.run()
    except ModelError as error:
        print(f"failed: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
