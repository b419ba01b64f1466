"""What all requests share, and a call in flight."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pdd.api.config import RouterConfig
from pdd.common.clock import Clock
from pdd.engine.adapters import Adapter
from pdd.engine.tokenizers import Tokenizer
from pdd.router.client import Client, Reply
from pdd.router.events import Kind, StartCall
from pdd.router.fleet import Engine, Fleet
from pdd.router.metrics import Metrics
from pdd.router.planning import Planner
from pdd.router.seen import SeenRequests

if TYPE_CHECKING:
    from pdd.router.conduct import Conductor

HANDLES = frozenset({Kind.FIRST, Kind.RESUME, Kind.HANDLE})
"""Calls of P whose answer brings a handle."""


@dataclass(slots=True)
class RelayCounters:
    """For the autoscaler (D9): arrivals and holding time of RLD sessions, since the start."""

    arrivals_total: int = 0
    holding_s_sum: float = 0.0
    holding_s_count: int = 0
    refused_total: int = 0


@dataclass(slots=True)
class Services:
    """What all requests share."""

    config: RouterConfig
    clock: Clock
    client: Client
    adapter: Adapter
    tokenizer: Tokenizer
    fleet: Fleet
    planner: Planner
    metrics: Metrics
    relay: RelayCounters = field(default_factory=RelayCounters)
    seen: SeenRequests = field(default_factory=SeenRequests)
    runs: dict[Engine, set[Run]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Run:
    """One call in flight. queued_bytes: KV that it brings over the line."""

    command: StartCall
    engine: Engine
    conductor: Conductor
    started_s: float
    queued_bytes: int = 0
    task: asyncio.Task[None] | None = None
    reply: Reply | None = None
    cancelled: bool = False
    sent: bool = False

    @property
    def wants_handle(self) -> bool:
        return self.command.kind in HANDLES

    def note_sent(self) -> bool:
        """The request is written. Returns whether its answer is no longer wanted."""
        self.sent = True
        return self.cancelled
