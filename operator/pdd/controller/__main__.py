"""`python -m pdd.controller`: the operator. Configured by its environment alone (see settings.py)."""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any, cast

import kopf

from pdd.common.errors import InvalidInput
from pdd.common.logging import setup_logging
from pdd.controller import metrics
from pdd.controller.handlers import build_registry
from pdd.controller.kube.access import own_access
from pdd.controller.runtime import Runtime
from pdd.controller.settings import settings_from

_log = logging.getLogger("pdd.controller")


def main() -> int:
    """Run until SIGTERM or SIGINT. 2: wrong environment, with one line that names it."""
    setup_logging()
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        settings, access = settings_from(), own_access()
    except InvalidInput as error:
        print(error.message, file=sys.stderr)
        return 2
    holder: dict[str, Runtime] = {}
    heartbeat = metrics.Heartbeat()
    server = metrics.serve(settings.metrics_port, heartbeat)
    try:
        kopf.run(
            registry=build_registry(access, settings, holder, heartbeat),
            standalone=True,
            # kopf would ask for the user's name otherwise, and an arbitrary UID in a container has none.
            identity=cast(Any, f"pdd-operator@{socket.gethostname()}"),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
    finally:
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
