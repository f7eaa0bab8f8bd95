"""`python -m sapwood`."""

from __future__ import annotations

import sys

from sapwood.cli import main

if __name__ == "__main__":
    sys.exit(main())
