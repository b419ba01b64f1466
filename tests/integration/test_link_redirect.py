"""Transparent redirect: an engine that knows nothing of the link dials P's address, and arrives through it.

Two network namespaces of our own. Direct traffic to the target is rejected, so bytes that arrive came over the link.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.link_support import Lab

UID = 65533
TARGET = "10.88.0.1"
GATEWAY = "10.77.0.1"
ENDPOINT = "10.77.0.2"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("iptables") is None or shutil.which("ip") is None,
    reason="network namespaces and iptables need root, iproute2 and iptables (make test installs them, as root)",
)


def sh(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Site:
    """One network namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ip(self, *words: str) -> None:
        sh("ip", "-n", self.name, *words)

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def python(self, *words: str) -> list[str]:
        return self.command(sys.executable, "-m", *words)


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    a, b = Site(f"pdda{os.getpid()}"), Site(f"pddb{os.getpid()}")
    try:
        for site in (a, b):
            sh("ip", "netns", "add", site.name)
            site.ip("link", "set", "lo", "up")
        sh("ip", "link", "add", "va", "netns", a.name, "type", "veth", "peer", "name", "vb", "netns", b.name)
        a.ip("addr", "add", f"{GATEWAY}/24", "dev", "va")
        b.ip("addr", "add", f"{ENDPOINT}/24", "dev", "vb")
        a.ip("link", "set", "va", "up")
        b.ip("link", "set", "vb", "up")
        a.ip("addr", "add", f"{TARGET}/32", "dev", "lo")
        b.ip("route", "add", "10.88.0.0/16", "via", GATEWAY)
        sh(*a.command("iptables", "-A", "INPUT", "-i", "va", "-d", TARGET, "-j", "REJECT"))
        yield a, b
    finally:
        for site in (a, b):
            subprocess.run(["ip", "netns", "delete", site.name], capture_output=True, timeout=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Readable by the endpoint's user, which pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="pdd-redirect-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def start(stack: ExitStack, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=stack.enter_context(log.open("wb")), stderr=subprocess.STDOUT)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(6)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)

    stack.callback(stop)
    return process


def await_ready(site: Site, port: int, log: Path) -> None:
    """The endpoint's line is up."""
    probe = f"import urllib.request as u; u.urlopen('http://{ENDPOINT}:{port}/readyz', timeout=2)"
    end = time.monotonic() + 20
    while subprocess.run(site.command(sys.executable, "-c", probe), capture_output=True, timeout=20).returncode:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


def test_an_engine_is_carried_without_knowing_it(sites: tuple[Site, Site], folder: Path) -> None:
    a, b = sites
    lab = Lab(folder)
    gateway = lab.gateway_config().model_copy(update={"host": GATEWAY, "allow": (f"{TARGET}/32:1-65535",)})
    endpoint = lab.endpoint_config(
        gateway=f"{GATEWAY}:{lab.line_port}",
        mode="Redirect",
        redirect_cidrs=("10.88.0.0/16",),
        run_as_uid=UID,
        http_host="0.0.0.0",
    )
    (folder / "g.json").write_text(gateway.model_dump_json(by_alias=True))
    (folder / "e.json").write_text(endpoint.model_dump_json(by_alias=True))
    for path in folder.iterdir():
        path.chmod(0o644)
    init = b.python("pdd.link", "init-redirect", "--config", str(folder / "e.json"))
    sh(*init)
    rules = sh(*b.command("iptables", "-t", "nat", "-S"))
    sh(*init)
    assert sh(*b.command("iptables", "-t", "nat", "-S")) == rules, "twice leaves the same rules"

    read = ["pdd.link.bench_peer", "read", "--target", f"{TARGET}:9001", "--bytes", "5000000"]
    as_endpoint = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
    with ExitStack() as stack:
        start(stack, a.python("pdd.link.bench_peer", "source", "--host", TARGET, "--port", "9001"), folder / "s.log")
        start(stack, a.python("pdd.link", "gateway", "--config", str(folder / "g.json")), folder / "g.log")
        serve = [sys.executable, "-m", "pdd.link", "endpoint", "--config", str(folder / "e.json")]
        start(stack, b.command(*as_endpoint, *serve), folder / "e.log")
        await_ready(b, lab.endpoint_http_port, folder / "e.log")

        done = subprocess.run(b.python(*read), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr + (folder / "e.log").read_text()
        assert json.loads(done.stdout)["bytes"] == 5_000_000

        spared = subprocess.run(
            b.command(*as_endpoint, sys.executable, "-m", *read), capture_output=True, text=True, timeout=60
        )
        assert "refused" in spared.stderr, "the endpoint's own user is not redirected, and direct traffic is rejected"

        loop = f"import socket; s=socket.create_connection(('127.0.0.1', {lab.kv_port}), 5); print(s.recv(1))"
        assert sh(*b.command(sys.executable, "-c", loop)).strip() == "b''", "no loop onto itself"


def test_without_net_admin_it_says_what_is_missing(sites: tuple[Site, Site], folder: Path) -> None:
    _, b = sites
    config = Lab(folder).endpoint_config(mode="Redirect", redirect_cidrs=("10.88.0.0/16",))
    (folder / "e.json").write_text(config.model_dump_json(by_alias=True))
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid", "65534", "--clear-groups"]
    (folder / "e.json").chmod(0o644)
    init = [sys.executable, "-m", "pdd.link", "init-redirect", "--config", str(folder / "e.json")]
    done = subprocess.run(b.command(*powerless, *init), capture_output=True, text=True, timeout=30)
    assert done.returncode == 3, done.stderr
    assert "NET_ADMIN" in done.stderr
