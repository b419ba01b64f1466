"""What the link reaches: goodput as a share of the cap, the fast lane's delay beside saturated bulk, plain TCP.

Everything runs as processes of this machine, over one of three lines:

    emulated  the user-space line (`emulate-line`): needs no rights; models rate, delay and queue, no loss
    loopback  no line at all: what the processes themselves can do
    given     a real or emulated line between two network namespaces: `prefix_a` and `prefix_b` are put before the
              commands of each side (`ip netns exec a`), `host_a` and `host_b` are the addresses there
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdd.api.config import EndpointConfig, GatewayConfig, LinkTuning, TLSFiles
from pdd.common.certs import issue, make_ca
from pdd.common.errors import InvalidInput, PDDError, TimedOut

START_TIMEOUT_S = 20.0
WORK_TIMEOUT_S = 180.0
MEMBER = "bench/bench/md-0"


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """rate_mbps: the cap of the link and, when emulated, the rate of the line. object_s: size of an object, in seconds
    of the cap."""

    line: str = "emulated"
    rtt_ms: float = 20.0
    rate_mbps: float = 100.0
    streams: Sequence[int] = (1, 4)
    object_s: float = 3.0
    many: int = 16
    rounds: int = 2
    ping_s: float = 4.0
    congestion_control: str = "bbr"
    line_mbps: float = 0.0
    """The emulated line's rate, if other than the cap."""
    prefix_a: Sequence[str] = ()
    prefix_b: Sequence[str] = ()
    host_a: str = "127.0.0.1"
    host_b: str = "127.0.0.1"

    @property
    def object_bytes(self) -> int:
        return max(4_000_000, int(self.rate_mbps * 1e6 / 8 * self.object_s)) if self.rate_mbps else 256_000_000


@dataclass(slots=True)
class _Bench:
    spec: BenchSpec
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, side: str, *command: str) -> subprocess.Popen[bytes]:
        """A process on one side; stopped at the end."""
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [*self.prefix(side), sys.executable, "-m", *command], stdout=log, stderr=subprocess.STDOUT
        )
        self.processes.append(process)
        return process

    def prefix(self, side: str) -> list[str]:
        return list(self.spec.prefix_a if side == "a" else self.spec.prefix_b)

    def peer(self, side: str, *args: str) -> dict[str, Any]:
        """Run a reader or pinger on one side to its end; its figures."""
        found: dict[str, Any] = self.wait(self.begin_peer(side, *args))
        return found

    def begin_peer(self, side: str, *args: str) -> subprocess.Popen[bytes]:
        command = [*self.prefix(side), sys.executable, "-m", "pdd.link.bench_peer", *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        try:
            out, err = process.communicate(timeout=WORK_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise TimedOut(f"a bench worker did not end within {WORK_TIMEOUT_S:g} s") from error
        if process.returncode:
            raise PDDError(f"a bench worker failed: {err.decode(errors='replace').strip()[-400:]}")
        found: dict[str, Any] = json.loads(out)
        if found.get("errors"):
            raise PDDError(f"a bench worker failed: {found['errors'][0]}")
        return found

    def stop(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(6)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
            self.processes.remove(process)

    def await_port(self, side: str, host: str, port: int) -> None:
        """Until something listens there; asked from the side itself, since namespaces do not see each other."""
        probe = f"import socket; socket.create_connection(({host!r}, {port}), 1).close()"
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            done = subprocess.run([*self.prefix(side), sys.executable, "-c", probe], capture_output=True, timeout=10)
            if done.returncode == 0:
                return
            time.sleep(0.05)
        raise TimedOut(f"nothing listens on {host}:{port} after {START_TIMEOUT_S:g} s; see {self.folder}")


def run(
    *,
    line: str = "emulated",
    rtt_ms: float = 20.0,
    rate_mbps: float = 100.0,
    streams: Sequence[int] = (1, 4),
    **others: Any,
) -> dict[str, Any]:
    """Measure one line. Returns a document for `pdd bench link --json`; see BenchSpec for the other arguments.

    Shares are payload bits per second over the cap; delays are milliseconds of a 64-byte message there and back.
    """
    spec = BenchSpec(line=line, rtt_ms=rtt_ms, rate_mbps=rate_mbps, streams=tuple(streams), **others)
    if spec.line not in ("emulated", "loopback", "given"):
        raise InvalidInput("line", spec.line, "use emulated, loopback or given")
    with tempfile.TemporaryDirectory(prefix="pdd-bench-") as name:
        bench = _Bench(spec, Path(name))
        try:
            return _measure(bench)
        finally:
            bench.stop(list(bench.processes))


def _measure(bench: _Bench) -> dict[str, Any]:
    spec = bench.spec
    source_port, echo_port = _free_port(), _free_port()
    bench.start("a", "pdd.link.bench_peer", "source", "--host", spec.host_a, "--port", str(source_port))
    bench.start("b", "pdd.link.bench_peer", "echo", "--host", spec.host_b, "--port", str(echo_port))
    bench.await_port("a", spec.host_a, source_port)
    bench.await_port("b", spec.host_b, echo_port)
    with _line(bench, f"{spec.host_a}:{source_port}") as plain_target:
        plain = {f"tcp_{n}": _read(bench, plain_target, "", connections=n) for n in (1, 4)}
    link: dict[str, Any] = {}
    for streams in spec.streams:
        with _link(bench, streams, echo_port) as (proxy, http):
            target = f"{spec.host_a}:{source_port}"
            figures = {
                "one_object": _read(bench, target, proxy, connections=1),
                "many_objects": _read(bench, target, proxy, connections=spec.many),
            }
            figures["fast_lane_ms"] = _fast_lane(bench, target, proxy, http)
            link[str(streams)] = figures
    return {
        "line": spec.line,
        "rtt_ms": spec.rtt_ms,
        "rate_bps": int(spec.rate_mbps * 1e6),
        "object_bytes": spec.object_bytes,
        "congestion_control": spec.congestion_control,
        "link_by_streams": link,
        "plain": plain,
    }


def _read(bench: _Bench, target: str, proxy: str, *, connections: int) -> dict[str, Any]:
    """The first round pays for slow start, the last one is the steady state."""
    spec = bench.spec
    args = ["read", "--target", target, "--proxy", proxy, "--bytes", str(spec.object_bytes)]
    found = bench.peer("b", *args, "--connections", str(connections), "--rounds", str(spec.rounds))
    rates = [found["bytes"] * 8 / seconds for seconds in found["seconds"]]
    shown: dict[str, Any] = {"first_bps": int(rates[0]), "last_bps": int(rates[-1])}
    if spec.rate_mbps:
        shown["first_share"] = round(rates[0] / (spec.rate_mbps * 1e6), 4)
        shown["last_share"] = round(rates[-1] / (spec.rate_mbps * 1e6), 4)
    return shown


def _fast_lane(bench: _Bench, target: str, proxy: str, http: str) -> dict[str, Any]:
    spec = bench.spec
    args = ["ping", "--target", f"{MEMBER}:80", "--proxy", http, "--seconds", str(spec.ping_s)]
    idle = bench.peer("a", *args)
    size = int(spec.object_bytes * max(1.0, (spec.ping_s + 2) / spec.object_s))
    reading = ["read", "--target", target, "--proxy", proxy, "--bytes", str(size), "--connections", "4"]
    load = bench.begin_peer("b", *reading)
    time.sleep(0.7)  # the load has to be under way: part of what is measured, not a wait for luck
    busy = bench.peer("a", *args)
    bench.wait(load)
    return {"idle": idle, "under_bulk": busy}


@contextlib.contextmanager
def _line(bench: _Bench, to: str) -> Iterator[str]:
    """Where side B reaches `to` of side A over the line."""
    spec = bench.spec
    if spec.line != "emulated":
        yield to
        return
    port = _free_port()
    rates = ["--rtt-ms", str(spec.rtt_ms), "--mbps", str(spec.line_mbps or spec.rate_mbps)]
    process = bench.start("b", "pdd.link", "emulate-line", "--listen", f"127.0.0.1:{port}", "--to", to, *rates)
    bench.await_port("b", "127.0.0.1", port)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        bench.stop([process])


@contextlib.contextmanager
def _link(bench: _Bench, streams: int, echo_port: int) -> Iterator[tuple[str, str]]:
    """A gateway and an endpoint with the line between them: (proxy of the endpoint, http of the gateway)."""
    spec = bench.spec
    line_port, http_port, kv_port, health_port = (_free_port() for _ in range(4))
    tls = _certificates(bench.folder)
    tuning = LinkTuning(
        streams=streams,
        rate_bps=int(spec.rate_mbps * 1e6),
        rtt_ms=round(spec.rtt_ms),
        congestion_control=spec.congestion_control,
        keepalive_s=1,
    )
    gateway = GatewayConfig(
        name="bench",
        host=spec.host_a,
        line_port=line_port,
        http_port=http_port,
        tls=tls["gateway"],
        tuning=tuning,
        allow=("0.0.0.0/0:1-65535",),
    )
    config_a = bench.folder / "gateway.json"
    config_a.write_text(gateway.model_dump_json(by_alias=True))
    processes = [bench.start("a", "pdd.link", "gateway", "--config", str(config_a))]
    bench.await_port("a", spec.host_a, http_port)
    try:
        with _line(bench, f"{spec.host_a}:{line_port}") as dialled:
            endpoint = EndpointConfig(
                name="md-0",
                deployment="bench",
                namespace="bench",
                gateway=dialled,
                tls=tls["endpoint"],
                tuning=tuning,
                kv_host=spec.host_b,
                kv_port=kv_port,
                http_host=spec.host_b,
                http_port=health_port,
                engine_url=f"http://{spec.host_b}:{echo_port}",
            )
            config_b = bench.folder / "endpoint.json"
            config_b.write_text(endpoint.model_dump_json(by_alias=True))
            processes.append(bench.start("b", "pdd.link", "endpoint", "--config", str(config_b)))
            bench.await_port("b", spec.host_b, health_port)
            _await_member(bench, http_port, streams)
            yield f"{spec.host_b}:{kv_port}", f"{spec.host_a}:{http_port}"
    finally:
        bench.stop(processes)


def _await_member(bench: _Bench, http_port: int, streams: int) -> None:
    probe = (
        "import json,sys,urllib.request as u;"
        f"m=json.load(u.urlopen('http://{bench.spec.host_a}:{http_port}/members',timeout=5))['members'];"
        f"sys.exit(0 if m and m[0]['state']=='connected' and m[0]['streams']=={streams} else 1)"
    )
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        command = [*bench.prefix("a"), sys.executable, "-c", probe]
        environment = {**os.environ, "no_proxy": "*"}
        if subprocess.run(command, capture_output=True, timeout=15, env=environment).returncode == 0:
            return
        time.sleep(0.1)
    raise TimedOut(f"the endpoint did not reach the gateway within {START_TIMEOUT_S:g} s; see {bench.folder}")


def _certificates(folder: Path) -> dict[str, TLSFiles]:
    """Both ends' files, made once."""
    names = {"gateway": "gateway.bench", "endpoint": "endpoint.bench"}
    ca_path = folder / "ca.crt"
    if not ca_path.exists():
        ca = make_ca()
        ca_path.write_bytes(ca.cert)
        for end, name in names.items():
            pair = issue(ca, [name], days=1)
            (folder / f"{end}.crt").write_bytes(pair.cert)
            (folder / f"{end}.key").write_bytes(pair.key)
    peers = {"gateway": names["endpoint"], "endpoint": names["gateway"]}
    return {
        end: TLSFiles(
            cert=str(folder / f"{end}.crt"), key=str(folder / f"{end}.key"), ca=str(ca_path), peer_name=peers[end]
        )
        for end in names
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
