"""Starts reference engines as processes for tests, and speaks to them over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

START_TIMEOUT_S = 60.0


class EngineProcess:
    """One engine on ports of the kernel's choice; its log is in `log`."""

    def __init__(self, role: str, folder: Path, *flags: str) -> None:
        self.log = folder / f"{role}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "pdd.engine.reference", "--role", role, "--kv-port", "0", *flags]
        self.port = free_port()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=log)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60.0)
        wait_for(self._healthy, START_TIMEOUT_S, lambda: self.log.read_text())

    def _healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def complete(self, prompt: list[int] | str, **fields: Any) -> dict[str, Any]:
        """A greedy completion that returns ids; fails on any status but 200."""
        answer = self.post("/v1/completions", completion_body(prompt, **fields))
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def ids(self, prompt: list[int], max_tokens: int, **fields: Any) -> list[int]:
        body = self.complete(prompt, max_tokens=max_tokens, ignore_eos=True, **fields)
        ids: list[int] = body["choices"][0]["token_ids"]
        return ids

    def prefill(self, prompt: list[int], **fields: Any) -> dict[str, Any]:
        """The handle for one reader of this prompt's KV."""
        ask = {"do_remote_decode": True, "do_remote_prefill": False}
        empty = dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
        body = self.complete(prompt, max_tokens=1, ignore_eos=True, kv_transfer_params={**ask, **empty}, **fields)
        handle: dict[str, Any] = body["kv_transfer_params"]
        return handle

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.http.get("/pdd/state").json()
        return state

    def metric(self, name: str, labels: str = "") -> float:
        """Value of the sample whose labels contain `labels`."""
        for line in self.http.get("/metrics").text.splitlines():
            match = re.fullmatch(rf"{re.escape(name)}{{(.*)}} (\S+)", line)
            if match and labels in match[1]:
                return float(match[2])
        raise AssertionError(f"no sample {name} {labels}")

    def wait_until_free(self, timeout_s: float = 10.0) -> None:
        """Until no block, lease or session is held."""
        wait_for(lambda: is_free(self.state()), timeout_s, lambda: json.dumps(self.state()))

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(10)
        finally:
            self.process.kill()
            self.http.close()


def completion_body(prompt: list[int] | str, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "temperature": 0, "return_token_ids": True, **fields}


def is_free(state: dict[str, Any]) -> bool:
    held = state["running"], state["waiting"], state["loading"], state["leases"], state["sessions"]
    return state["free_blocks"] == state["total_blocks"] and not any(held) and not state["kv_sessions"]


def wait_for(condition: Callable[[], bool], timeout_s: float, explain: Callable[[], str] = str) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {explain()}"
        time.sleep(0.02)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON bodies of an event stream up to [DONE], which must come."""
    for line in lines:
        if not line:
            continue
        assert line.startswith("data: "), line
        if line == "data: [DONE]":
            return
        yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without [DONE]")
