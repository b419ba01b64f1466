"""One loaded model for all engine tests, and an engine core whose clock and remote reads are in the test's hands."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the engine's process does; read when numpy is first imported

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from pdd.engine.reference.config import ModelConfig
from pdd.engine.reference.core import CoreLimits, EngineCore
from pdd.engine.reference.kvstore import KVStore
from pdd.engine.reference.leases import LeaseTable
from pdd.engine.reference.model import Model
from pdd.engine.reference.sequence import BlockRange, Output, RemoteHandle, Request
from pdd.engine.reference.weights import load_weights
from pdd.engine.tokenizer import ByteTokenizer


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class RecordedLoads:
    """A LoadPort that notes what the core asks for."""

    started: dict[str, tuple[RemoteHandle, tuple[BlockRange, ...]]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def start(self, request_id: str, handle: RemoteHandle, ranges: tuple[BlockRange, ...]) -> None:
        self.started[request_id] = (handle, ranges)

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def release(self, request_id: str, handle: RemoteHandle) -> None:
        self.released.append(request_id)


class Bench:
    """A core with its collaborators, driven by hand."""

    def __init__(self, model: Model, *, num_blocks: int, block_size: int, limits: CoreLimits, lease_s: float) -> None:
        self.clock = FakeClock()
        self.loads = RecordedLoads()
        self.store = KVStore(model.config, num_blocks, block_size)
        self.leases = LeaseTable(lease_s)
        eos = int(ByteTokenizer.eos_token_id)
        self.core = EngineCore(model, self.store, self.leases, self.loads, limits, eos_token_id=eos, clock=self.clock)
        self.outputs: dict[str, list[Output]] = {}

    def add(self, request: Request) -> None:
        news = self.outputs.setdefault(request.request_id, [])
        self.core.add(request, news.append)

    def step(self) -> bool:
        self.clock.now_s += 0.01
        ran = self.core.step().ran
        for sink, output in self.core.take_news():
            sink(output)
        self.core.blocks.check()
        return ran

    def run(self, steps: int = 2000) -> None:
        """Step until nothing is left to do; fail if that takes too long or the core stands still."""
        for _ in range(steps):
            if self.core.idle:
                return
            assert self.step() or self.core.idle, "the core stands still"
        raise AssertionError(f"not done after {steps} steps")

    def tokens(self, request_id: str) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.tokens]

    def last(self, request_id: str) -> Output:
        return self.outputs[request_id][-1]

    def land(self, request_id: str, owner: Bench) -> int:
        """Carry out the read that the core asked for, from another bench's leased blocks. Returns the tokens read."""
        handle, ranges = self.loads.started.pop(request_id)
        lease = owner.leases.begin_read(handle.request_id, request_id, owner.clock())
        landed = 0
        for wanted in ranges:
            payload = owner.store.export_tokens(lease.blocks[wanted.index], wanted.start, wanted.end)
            self.store.import_tokens(wanted.target, wanted.start, wanted.end, payload)
            landed += wanted.end - wanted.start
        owner.leases.finish(handle.request_id, request_id, owner.clock())
        self.core.finish_load(request_id, landed, None)
        return landed


def handle_of(output: Output) -> RemoteHandle:
    """The remote handle that a prefill's last output stands for."""
    lease = output.lease
    assert lease is not None
    return RemoteHandle("owner", lease.lease_id, "127.0.0.1", 1, lease.num_tokens, lease.blocks)


MakeBench = Callable[..., Bench]


@pytest.fixture(scope="session")
def model() -> Model:
    config = ModelConfig()
    return Model(config, load_weights(config))


@pytest.fixture
def make_bench(model: Model) -> Iterator[MakeBench]:
    benches: list[Bench] = []

    def make(
        *, num_blocks: int = 128, block_size: int = 16, limits: CoreLimits | None = None, lease_s: float = 30.0
    ) -> Bench:
        bench = Bench(
            model, num_blocks=num_blocks, block_size=block_size, limits=limits or CoreLimits(), lease_s=lease_s
        )
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.core.blocks.check()
