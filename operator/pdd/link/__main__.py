"""`python -m pdd.link`: gateway, endpoint, init-redirect, emulate-line, bench."""

from __future__ import annotations

import sys

from pdd.link.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
