"""Routes for the controller: what the autoscaler and the advice read, and draining an RLD before it is scaled in."""

from __future__ import annotations

import hmac
import os
import socket

import orjson

from pdd.common.show import shown
from pdd.router.admission import Admission
from pdd.router.asgi import Receive, Scope, Send, header, read_body, send_all
from pdd.router.discovery import Discovery
from pdd.router.events import Role
from pdd.router.openai import BadRequest, parse_body
from pdd.router.services import Services

_LOOPBACK = ("127.0.0.1", "::1")
_MAX_TTL_S = 3600


class Internal:
    """`/internal/load`, `/internal/workload` and `/internal/drain`."""

    def __init__(self, services: Services, discovery: Discovery, admission: Admission) -> None:
        self._services = services
        self._discovery = discovery
        self._admission = admission
        self._started_s = services.clock()
        self._replica = os.environ.get("POD_NAME") or socket.gethostname()

    async def load(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        """Counters since the start, and gauges as of now."""
        services = self._services
        now_s = services.clock()
        relay = services.relay
        engines = [
            {
                "role": role.value,
                "url": engine.id,
                "host": engine.host,
                "sessions": engine.sessions,
                "healthy": engine.ready(now_s) and engine.known_good,
                "draining": engine.draining(now_s),
            }
            for role in Role
            for engine in services.fleet.engines[role].values()
        ]
        body = {
            "replica": self._replica,
            "uptime_s": round(now_s - self._started_s, 3),
            "relay": {
                "arrivals_total": relay.arrivals_total,
                "sessions": sum(engine.sessions for engine in services.fleet.engines[Role.RELAY].values()),
                "holding_s_sum": round(relay.holding_s_sum, 6),
                "holding_s_count": relay.holding_s_count,
                "refused_total": relay.refused_total,
            },
            "engines": engines,
            "link": self._discovery.members,
            "mode": "local" if services.planner.mode.local else "normal",
        }
        await send_all(send, 200, orjson.dumps(body))

    async def workload(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        """Lengths and hits of the last requests."""
        now_s = self._services.clock()
        open_requests = self._admission.in_flight + self._admission.queued
        seen = self._services.seen.to_object(now_s, now_s - self._started_s, open_requests)
        body = {"replica": self._replica, **seen}
        await send_all(send, 200, orjson.dumps(body))

    async def drain(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        """No new session for these RLD hosts for ttl_s seconds; 0 ends a drain. Repeating it extends it."""
        self._authorize(scope)
        body = parse_body(await read_body(receive, 1 << 20))
        hosts, ttl_s = body.get("hosts"), body.get("ttl_s")
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise BadRequest("hosts", "hosts: must be a list of addresses")
        if not isinstance(ttl_s, int | float) or not 0 <= ttl_s <= _MAX_TTL_S:
            raise BadRequest("ttl_s", f"ttl_s: {shown(ttl_s)}: must be a number of seconds from 0 to {_MAX_TTL_S}")
        services = self._services
        count = services.fleet.drain(hosts, services.clock() + ttl_s)
        sessions = sum(
            engine.sessions for engine in services.fleet.engines[Role.RELAY].values() if engine.host in set(hosts)
        )
        await send_all(send, 200, orjson.dumps({"drained": count, "sessions": sessions}))

    def _authorize(self, scope: Scope) -> None:
        token = self._services.config.drain_token
        if token:
            if not hmac.compare_digest(header(scope, b"authorization"), f"Bearer {token}"):
                raise BadRequest(None, "the drain token is missing or wrong", status=403)
            return
        client = scope.get("client")
        if not client or client[0] not in _LOOPBACK:
            raise BadRequest(
                None, "draining from another host needs a drain token (drainToken in the config)", status=403
            )
