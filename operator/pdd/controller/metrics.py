"""Every metric of the operator, and the HTTP server that shows them, in a thread of its own: kopf's loop is kopf's.

Labels are bounded: no names of objects but the links', no UIDs, no messages.
"""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STALL_S = 30.0

RECONCILES = Counter("pdd_reconcile_total", "Reconciles, by kind and result (ok, error).", ["kind", "result"])
RECONCILE_S = Histogram("pdd_reconcile_duration_seconds", "Time of one reconcile.", ["kind"], buckets=BUCKETS_S)
API_CALLS = Counter(
    "pdd_api_calls_total", "Calls to API servers; code 0: no answer.", ["site", "verb", "resource", "code"]
)
CHANGES = Counter("pdd_changes_total", "Objects written, by site, kind and action.", ["site", "kind", "action"])
STATUS_WRITES = Counter("pdd_status_writes_total", "Status writes.", ["kind"])
MEMBER_CONNECTED = Gauge("pdd_member_connected", "1 while cluster B of a link is connected.", ["link"])
SCALINGS = Counter("pdd_scalings_total", "Changes of the number of relay decode engines.", ["direction", "reason"])
SWEPT = Counter("pdd_swept_total", "Orphans deleted in B.", ["kind"])


class Heartbeat:
    """Beaten by the main loop; the liveness answer depends on it."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        self._at = time.monotonic()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._at


def observe_call(site: str) -> object:
    """An observer for a KubeClient that counts its calls under `site`."""

    def count(verb: str, resource: str, code: int) -> None:
        API_CALLS.labels(site, verb, resource, str(code)).inc()

    return count


def serve(port: int, heartbeat: Heartbeat, host: str = "0.0.0.0") -> ThreadingHTTPServer:
    """Serve /healthz and /metrics from a daemon thread. Shut it down with `shutdown()`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/healthz":
                alive = heartbeat.age_s < STALL_S
                self._answer(
                    200 if alive else 503, b"ok\n" if alive else b"the main loop does not turn\n", "text/plain"
                )
            elif self.path == "/metrics":
                self._answer(200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
            else:
                self._answer(404, b"only /healthz and /metrics\n", "text/plain")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
            return

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
