"""Three real vLLM servers on the CPU (P, RLD, MD; KV over NIXL) behind the router.

Not part of `make test`: vLLM is 5 GB of packages and its servers want the machine to themselves.

usage: PDD_VLLM_PYTHON=... PDD_VLLM_MODEL=... pytest tests/vllm -o asyncio_default_fixture_loop_scope=session
PDD_VLLM_PYTHON is a Python with vLLM 0.32 and nixl 1.5; PDD_VLLM_MODEL a folder with a tiny model (vocabulary 370 or
more, 4 layers, 2 KV heads of 64) and its tokenizer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pdd.api.config import EngineType
from pdd.api.deployment import KVConnector, Role
from pdd.api.engines import EngineParams, capabilities, connector_source, engine_command

START_TIMEOUT_S = 600
CONTEXT_TOKENS = 2048
BLOCK_TOKENS = 32  # vLLM's CPU attention takes multiples of 32 only
KV_BYTES_PER_TOKEN = 4096  # 2 x 4 layers x 2 KV heads x 64 x 4 bytes


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def params(role: Role, http: int, kv: int, python: str, model: str, connector_dir: str) -> EngineParams:
    return EngineParams(
        type=EngineType.VLLM, role=role, model=model, served_name="tiny", block_size=BLOCK_TOKENS,
        max_context_tokens=CONTEXT_TOKENS, max_sequences=8, kv_blocks=512, host="127.0.0.1", http_port=http, kv_port=kv,
        connector_dir=connector_dir, python=python, extra_args=("--dtype", "float32", "--enforce-eager"),
    )  # fmt: skip


@pytest.fixture(scope="session", params=[KVConnector.CLAMPING, KVConnector.STOCK], ids=["clamping", "stock"])
async def router_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The router's base URL, with P, RLD and MD behind it."""
    python, model = os.environ.get("PDD_VLLM_PYTHON"), os.environ.get("PDD_VLLM_MODEL")
    if not python or not model:
        pytest.fail("PDD_VLLM_PYTHON and PDD_VLLM_MODEL are not set: see tests/vllm/conftest.py", pytrace=False)
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "pdd_connector.py").write_text(connector_source())
    roles = (Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE)
    ports = free_ports(4)
    kv_base = 20600
    children: list[tuple[str, asyncio.subprocess.Process, Path]] = []
    common = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "UCX_NET_DEVICES": "lo",
    }  # fmt: skip

    async def start(name: str, words: tuple[str, ...], env: dict[str, str]) -> None:
        log = folder / f"{name}.log"
        with log.open("ab") as out:
            child = await asyncio.create_subprocess_exec(
                *words, stdout=out, stderr=out, env=env, start_new_session=True
            )
        children.append((name, child, log))

    try:
        for number, role in enumerate(roles):
            p = params(role, ports[number], kv_base + 40 * number, python, model, str(folder))
            command = engine_command(replace(p, kv_connector=request.param))
            await start(role.value, (*command.command, *command.args), common | command.env_values())
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url in urls[:3]:
            await _healthy(url + "/health", children)
        config = {
            "deployment": "tiny", "servedModelNames": ["tiny"], "engine": "vllm", "tokenizer": model,
            "capabilities": json.loads(capabilities(EngineType.VLLM, request.param).model_dump_json(by_alias=True)),
            "maxContextTokens": CONTEXT_TOKENS,
            "kv": {"bytesPerToken": KV_BYTES_PER_TOKEN, "blockSize": BLOCK_TOKENS},
            "prefill": {"urls": [urls[0]]}, "relayDecode": {"urls": [urls[1]]}, "mainDecode": {"urls": [urls[2]]},
            "link": {"capacityBps": 100_000_000, "rttMs": 20}, "allowOverrides": True,
        }  # fmt: skip
        (folder / "router.json").write_text(json.dumps(config))
        words = (sys.executable, "-m", "pdd.router", "--config", str(folder / "router.json"))
        await start("router", (*words, "--host", "127.0.0.1", "--port", str(ports[3])), dict(os.environ))
        await _healthy(urls[3] + "/ready", children)
        yield urls[3]
    finally:
        for _, child, _ in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
        for _, child, _ in children:
            try:
                await asyncio.wait_for(child.wait(), 20)
            except TimeoutError:
                os.killpg(child.pid, signal.SIGKILL)
                await child.wait()


async def _healthy(url: str, children: list[tuple[str, asyncio.subprocess.Process, Path]]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    async with httpx.AsyncClient(timeout=3) as client:
        while time.monotonic() < deadline:
            for name, child, log in children:
                if child.returncode is not None:
                    pytest.fail(f"{name} ended: {log.read_text()[-3000:]}", pytrace=False)
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.5)
    pytest.fail(f"{url} did not answer within {START_TIMEOUT_S} s", pytrace=False)
