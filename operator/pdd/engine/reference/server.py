"""Puts the engine together, serves until SIGTERM, drains, ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import sys
from collections.abc import Iterator

import uvicorn
import uvloop

from pdd.common import tasks
from pdd.common.clock import monotonic_s
from pdd.engine.reference.config import ModelConfig
from pdd.engine.reference.core import CoreLimits, EngineCore
from pdd.engine.reference.flags import Settings
from pdd.engine.reference.http import App, Parts
from pdd.engine.reference.kv_client import Puller, PullSettings
from pdd.engine.reference.kv_server import KVServer
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.leases import LeaseTable
from pdd.engine.reference.model import Model
from pdd.engine.reference.parse import Bounds
from pdd.engine.reference.replies import Identity
from pdd.engine.reference.runner import EngineThread
from pdd.engine.reference.weights import load_weights
from pdd.engine.tokenizer import ByteTokenizer

_log = logging.getLogger("pdd.engine")
_DRAIN_POLL_S = 0.05
_SWITCH_INTERVAL_S = 0.0005
"""How long the engine's thread may keep the interpreter while the loop has tokens to send."""


class _Server(uvicorn.Server):
    """uvicorn whose signals are ours: SIGTERM drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Engine:
    """All parts of one engine process."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.died = asyncio.Event()
        config = ModelConfig()
        weights = load_weights(config)
        store = KVStore(config, settings.num_blocks, settings.block_size)
        leases = LeaseTable(settings.kv_lease_s)
        engine_id = secrets.token_hex(16)
        pull_settings = PullSettings(
            proxy=settings.kv_proxy,
            idle_timeout_s=settings.kv_timeout_s,
            hold_interval_s=min(10.0, settings.kv_lease_s / 3),
        )
        self.puller = Puller(
            store, pull_settings, fingerprint=weights.fingerprint, loop=loop, on_loaded=self._on_loaded
        )
        limits = CoreLimits(settings.max_num_seqs, settings.chunk_tokens, settings.recompute_on_load_failure)
        core = EngineCore(
            Model(config, weights),
            store,
            leases,
            self.puller,
            limits,
            eos_token_id=ByteTokenizer.eos_token_id,
            clock=monotonic_s,
        )
        self.thread = EngineThread(
            core,
            loop=loop,
            clock=monotonic_s,
            step_s=settings.step_ms / 1000,
            max_queued=settings.max_queued,
            on_died=self.died.set,
        )
        self.kv_server = KVServer(
            store,
            leases,
            engine_id=engine_id,
            fingerprint=weights.fingerprint,
            on_ended=self.thread.wake,
            clock=monotonic_s,
            timeout_s=settings.kv_timeout_s,
        )
        self._engine_id = engine_id

    def _on_loaded(self, request_id: str, landed_tokens: int, error: str | None) -> None:
        self.thread.finish_load(request_id, landed_tokens, error)

    async def start(self) -> App:
        """Listen for KV readers and start the engine's thread. Returns the HTTP application."""
        settings = self.settings
        kv_port = await self.kv_server.start(settings.host, settings.kv_port)
        bounds = Bounds(
            settings.served_model_names,
            ByteTokenizer.vocab_size,
            settings.max_model_len,
            settings.num_blocks * settings.block_size,
        )
        identity = Identity(self._engine_id, settings.advertise_host, kv_port)
        self.thread.start()
        return App(Parts(settings, identity, bounds, self.thread, self.puller, self.kv_server))

    async def drain(self, app: App) -> None:
        """Refuse new work; wait, at most the grace, until requests are finished and leases read."""
        app.draining = True
        core = self.thread.core
        until_s = monotonic_s() + self.settings.grace_s
        while app.sessions or not core.idle or core.leases.counts().held or self.puller.sessions:
            if monotonic_s() >= until_s:
                break
            await asyncio.sleep(_DRAIN_POLL_S)
        else:
            return
        left = core.leases.counts().held
        _log.warning("grace is over", extra={"fields": {"requests": app.sessions, "leases": left}})
        self.thread.abort_all("the engine is shutting down")

    async def close(self) -> None:
        await self.puller.close()
        await self.kv_server.close()
        await asyncio.to_thread(self.thread.stop)


async def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT. Returns the process's exit code: 1 if it cannot listen, or if the engine's thread
    died (whoever runs the process starts it anew; one that only looks alive would have to be found out first)."""
    loop = asyncio.get_running_loop()
    engine = Engine(settings, loop)
    app = await engine.start()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def end() -> None:
        await stop.wait()
        await engine.drain(app)
        server.should_exit = True

    async def die() -> None:
        await engine.died.wait()
        server.should_exit = True

    ending = tasks.spawn(end(), name="drain")
    dying = tasks.spawn(die(), name="died")
    fields = {"role": settings.role, "http": f"{settings.host}:{settings.port}", "kv": engine.kv_server.port}
    _log.info("engine starts", extra={"fields": fields})
    try:
        await server.serve()
    except SystemExit:
        _log.error("cannot listen", extra={"fields": {"host": settings.host, "port": settings.port}})
        return 1
    finally:
        await tasks.cancel(ending, dying)
        await engine.close()
    return 0 if stop.is_set() and not engine.died.is_set() else 1


def run(settings: Settings) -> int:
    """Blocks until the process is told to end."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return uvloop.run(serve(settings))
