"""The command line. Each flag is also an environment variable: --kv-port is PDD_ENGINE_KV_PORT."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pdd.common.errors import InvalidInput
from pdd.engine.reference import DEFAULT_BLOCK_SIZE
from pdd.engine.reference.config import ModelConfig

ROLES = ("prefill", "relay-decode", "main-decode")
_ANY_ADDRESS = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked command line. Ports may be 0: the kernel chooses."""

    role: str
    host: str
    port: int
    kv_port: int
    advertise_host: str
    served_model_names: tuple[str, ...]
    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_queued: int
    chunk_tokens: int
    step_ms: float
    kv_proxy: tuple[str, int] | None
    kv_lease_s: float
    kv_timeout_s: float
    recompute_on_load_failure: bool
    grace_s: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise InvalidInput("command line", message, "see --help")


def parse_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Raises InvalidInput that names flag, value and remedy."""
    parser = _Parser(prog="python -m pdd.engine.reference", description="The reference engine.", allow_abbrev=False)

    def add(flag: str, default: object, text: str) -> None:
        name = "PDD_ENGINE_" + flag.removeprefix("--").replace("-", "_").upper()
        parser.add_argument(flag, default=environ.get(name, default), help=f"{text} [{name}; {default}]")

    add("--role", "prefill", "label in /pdd/state: " + ", ".join(ROLES))
    add("--host", "127.0.0.1", "address that both ports listen on")
    add("--port", "8000", "HTTP port; 0 lets the kernel choose")
    add("--kv-port", "8001", "port where readers of exported KV connect; 0 lets the kernel choose")
    add("--advertise-host", "", "address that readers dial (default: --host)")
    add("--served-model-name", "tiny", "comma-separated names that requests may use")
    add("--block-size", str(DEFAULT_BLOCK_SIZE), "tokens per KV block")
    add("--num-blocks", "4096", "KV blocks")
    add("--max-model-len", "16384", "longest prompt + output, tokens")
    add("--max-num-seqs", "16", "requests that run at once")
    add("--max-queued", "256", "requests that may wait; beyond them 429")
    add("--chunk-tokens", "512", "prompt tokens computed per step")
    add("--step-ms", "0", "least duration of a step, slept: stands for an accelerator's step time")
    add("--kv-proxy", "", "HTTP CONNECT proxy for reading remote KV, http://host:port")
    add("--kv-lease-s", "30", "seconds that exported KV waits for a sign of its reader")
    add("--kv-timeout-s", "30", "seconds of silence after which a KV connection is given up")
    add("--kv-load-failure-policy", "fail", "fail: HTTP 500; recompute: compute the prompt here")
    add("--grace-s", "4", "seconds after SIGTERM to finish requests and have leases read")
    return _check(parser.parse_args(list(argv)))


def _check(raw: argparse.Namespace) -> Settings:
    if raw.role not in ROLES:
        raise InvalidInput("--role", raw.role, f"must be one of {', '.join(ROLES)}")
    if raw.kv_load_failure_policy not in ("fail", "recompute"):
        raise InvalidInput("--kv-load-failure-policy", raw.kv_load_failure_policy, "must be fail or recompute")
    names = tuple(name.strip() for name in raw.served_model_name.split(",") if name.strip())
    if not names:
        raise InvalidInput("--served-model-name", raw.served_model_name, "must hold at least one name")
    advertise = raw.advertise_host or raw.host
    if advertise in _ANY_ADDRESS:
        raise InvalidInput(
            "--advertise-host", raw.advertise_host, f"must be given with --host {raw.host}: readers dial it"
        )
    most = ModelConfig().max_context
    block_size = _integer("--block-size", raw.block_size, 1, 256)
    return Settings(
        role=raw.role,
        host=raw.host,
        port=_integer("--port", raw.port, 0, 65535),
        kv_port=_integer("--kv-port", raw.kv_port, 0, 65535),
        advertise_host=advertise,
        served_model_names=names,
        block_size=block_size,
        num_blocks=_integer("--num-blocks", raw.num_blocks, 1, 1 << 20),
        max_model_len=_integer("--max-model-len", raw.max_model_len, 2, most),
        max_num_seqs=_integer("--max-num-seqs", raw.max_num_seqs, 1, 1024),
        max_queued=_integer("--max-queued", raw.max_queued, 1, 1 << 16),
        chunk_tokens=_integer("--chunk-tokens", raw.chunk_tokens, 1, 1 << 16),
        step_ms=_number("--step-ms", raw.step_ms, 0, 60_000),
        kv_proxy=_proxy(raw.kv_proxy),
        kv_lease_s=_number("--kv-lease-s", raw.kv_lease_s, 0.05, 3600),
        kv_timeout_s=_number("--kv-timeout-s", raw.kv_timeout_s, 0.05, 3600),
        recompute_on_load_failure=raw.kv_load_failure_policy == "recompute",
        grace_s=_number("--grace-s", raw.grace_s, 0, 3600),
    )


def _proxy(url: str) -> tuple[str, int] | None:
    if not url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme != "http":
        raise InvalidInput("--kv-proxy", url, "must be http://host:port")
    return host, port


def _integer(flag: str, text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise InvalidInput(flag, text, f"must be an integer from {low} to {high}")
    return value


def _number(flag: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InvalidInput(flag, text, f"must be a number from {low:g} to {high:g}")
    return value
