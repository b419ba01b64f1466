"""`python -m pdd.engine.reference`: one engine process."""

from __future__ import annotations

import os
import sys

from pdd.common.errors import InvalidInput
from pdd.common.logging import setup_logging
from pdd.engine.reference.flags import parse_settings


def main() -> int:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        settings = parse_settings(sys.argv[1:])
    except InvalidInput as error:
        print(error.message, file=sys.stderr)
        return 2
    setup_logging()
    from pdd.engine.reference.server import run

    try:
        return run(settings)
    except InvalidInput as error:
        print(error.message, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--host/--port/--kv-port: {settings.host}: {error}: choose a free port", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
