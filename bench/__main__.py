from __future__ import annotations

import os
import sys

from .command import main


def run() -> int:
    """`main`, with what happens to a process rather than to a measurement."""
    try:
        return main()
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # else the reader has left, and knows it
            print(f"bench: cannot write: {error.strerror}", file=sys.stderr)
        return 1


sys.exit(run())
