"""One engine alone, as a process of this host: what the tokens of a request must be.

No router, no line, no handoff and no other engine has a part in its answers.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from e2e import paths
from e2e.client import Client
from e2e.shell import CommandFailed, wait_for

PARALLEL = 8
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "seed", "ignore_eos")


@dataclass(frozen=True, slots=True)
class Oracle:
    """The engine's ids for requests in the shape of /v1/completions with prompt ids."""

    client: Client

    def ids(self, request: Mapping[str, Any]) -> tuple[int, ...]:
        body = {"model": "tiny", "prompt": list(request["prompt"]), "return_token_ids": True}
        body |= {name: request[name] for name in SAMPLING if name in request}
        answer = self.client.request("POST", "/v1/completions", body)
        if answer.status != 200:
            raise CommandFailed(f"the reference engine refused: {answer.text[:300]}")
        return tuple(answer.document["choices"][0]["token_ids"])

    def many(self, requests: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
        """The same for many, a few at a time."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(self.ids, requests))


@contextlib.contextmanager
def running_oracle() -> Iterator[Oracle]:
    """Starts the engine on loopback and ends it."""
    port, kv_port = _free_ports(2)
    words = [sys.executable, "-m", "pdd.engine.reference", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--kv-port", str(kv_port), "--num-blocks", "8192", "--max-num-seqs", str(PARALLEL)]
    log = paths.state() / "oracle.log"
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=paths.REPOSITORY)
    try:
        client = Client(f"http://127.0.0.1:{port}", timeout_s=300)

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"the reference engine ended: {log.read_text()[-500:]}")
            try:
                return client.request("GET", "/health").status == 200
            except OSError:
                return False

        wait_for("the reference engine of this host", answers, timeout_s=60, every_s=0.1)
        yield Oracle(client)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
