"""The wire configurations: what the controller (or the local runner) renders and each process reads at start.

One file a process, JSON, camelCase. The controller writes them into ConfigMaps, `pdd up` into a run folder; so the
same `PDDDeployment` runs as local processes and on clusters.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from pdd.api.base import Model
from pdd.common.errors import InvalidInput

M = TypeVar("M", bound=Model)


class EngineType(StrEnum):
    REFERENCE = "reference"
    VLLM = "vllm"
    SGLANG = "sglang"


class HandoffMode(StrEnum):
    AUTO = "Auto"
    ONE_SHOT = "OneShot"
    CATCH_UP = "CatchUp"


class EngineCapabilities(Model):
    """What an engine type promises. The router refuses or pins what an engine cannot keep token-exact.

    clamps_remote_kv: a prompt longer than the remote KV may be sent together with the handle (reference engine, vLLM
        with the clamping connector); without it the router lands first and continues in a second call.
    position_keyed_sampling: a sampled token depends on (seed, position) alone, so it is the same on any engine.
    greedy_portable: greedy tokens are the same on any engine of the deployment whatever the batch.
    """

    clamps_remote_kv: bool = False
    position_keyed_sampling: bool = False
    greedy_portable: bool = True


class Endpoints(Model):
    """Where the engines of a role are. Exactly one of the two.

    urls: fixed base URLs (`http://127.0.0.1:8100`), for local processes.
    dns: `host:port` of a headless Service: every address that it resolves to is one engine.
    """

    urls: tuple[str, ...] = ()
    dns: str = ""


class KVLayout(Model):
    """KV cache law. bytes_per_token and state_bytes in bytes; block_size in tokens."""

    bytes_per_token: int = Field(gt=0)
    state_bytes: int = Field(default=0, ge=0)
    block_size: int = Field(default=16, gt=0)


class LinkExpectation(Model):
    """The line as the platform team states it, used until the gateway has measured it."""

    capacity_bps: int = Field(gt=0, description="bits per second that KV may use (the rate cap)")
    rtt_ms: int = Field(ge=0)


class RouterLimits(Model):
    """Bounds of admission. Beyond them a request is answered 429 with Retry-After."""

    max_concurrent: int = Field(default=256, gt=0)
    max_queued: int = Field(default=256, ge=0)
    max_relay_sessions: int = Field(default=64, gt=0, description="per RLD engine")
    request_timeout_s: int = Field(default=600, gt=0)
    connect_timeout_ms: int = Field(default=2000, gt=0)
    first_token_timeout_s: int = Field(default=120, gt=0)
    token_timeout_s: int = Field(default=30, gt=0, description="longest gap between two tokens of a stream")
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0)


class AbnormalTraffic(Model):
    """Very long uncached input, very short output: RLD runs it to the end and nothing crosses the line (P-RLD)."""

    enabled: bool = True
    max_output_tokens: int = Field(default=500, gt=0)
    min_transfer_ms: int = Field(
        default=5000, gt=0, description="predicted KV transfer at or above which the rule applies"
    )


class RouterConfig(Model):
    """All that the router needs. `gateway` is the link gateway's base URL in A."""

    deployment: str
    namespace: str = "default"
    served_model_names: tuple[str, ...] = Field(min_length=1)
    engine: EngineType = EngineType.REFERENCE
    capabilities: EngineCapabilities = EngineCapabilities()
    tokenizer: str = "bytes"
    max_context_tokens: int = Field(gt=0)
    kv: KVLayout
    prefill: Endpoints
    relay_decode: Endpoints
    gateway: str = ""
    main_decode: Endpoints = Endpoints()
    """Fixed MD engines reached directly (transport Direct); empty when the gateway offers them."""
    link: LinkExpectation
    relay_threshold_ms: int = Field(default=200, ge=0, description="predicted wait above which RLD relays")
    handoff_mode: HandoffMode = HandoffMode.AUTO
    one_shot_limit_tokens: int = Field(default=64, gt=0)
    abnormal: AbnormalTraffic = AbnormalTraffic()
    limits: RouterLimits = RouterLimits()
    allow_overrides: bool = False
    """Honour the request header `x-pdd-pipeline-override` (benches and demos only)."""
    drain_token: str = ""
    """Bearer token that PUT /internal/drain asks for; empty: the route answers only loopback peers."""


class TLSFiles(Model):
    """PEM files of one end. The peer must present a certificate of `ca` whose DNS name is `peer_name`."""

    cert: str
    key: str
    ca: str
    peer_name: str


class LinkTuning(Model):
    """How the line is used. rate in bits per second; 0 means uncapped."""

    streams: int = Field(default=4, ge=1, le=16)
    rate_bps: int = Field(default=0, ge=0)
    rtt_ms: int = Field(default=20, ge=0)
    congestion_control: str = "bbr"
    chunk_bytes: int = Field(default=256 * 1024, gt=0)
    fast_dscp: int = Field(default=0, ge=0, le=63, description="DiffServ code point of the fast lane; 0: unmarked")
    keepalive_s: int = Field(default=2, gt=0, description="a member is suspect after three of these without a sign")
    dead_after_s: int = Field(default=15, gt=0)
    session_retention_s: int = Field(
        default=90, ge=0, description="how long carried connections outlive the loss of all their streams"
    )


class GatewayConfig(Model):
    """The gateway in A. Two listeners: `line_port` (mTLS, endpoints dial in), `http_port` (router: CONNECT to an MD,
    GET /members; /metrics, /healthz).

    allow: `CIDR:low-high` targets in A that endpoints may reach (P's KV ports); everything else is refused.
    """

    name: str
    host: str = "0.0.0.0"
    line_port: int = Field(gt=0, lt=65536)
    http_port: int = Field(gt=0, lt=65536)
    tls: TLSFiles
    tuning: LinkTuning = LinkTuning()
    allow: tuple[str, ...] = ()


class EndpointMode(StrEnum):
    CONNECT = "Connect"
    REDIRECT = "Redirect"


class EndpointConfig(Model):
    """The endpoint beside one MD in B. It dials `gateway` (`host:port`), announces `name` and `deployment`, offers the
    engine at `engine_url` on localhost, and carries the engine's own connections to A.

    kv_port: local port of the CONNECT proxy (mode Connect) or of the transparent listener (mode Redirect).
    redirect_cidrs: destinations in A whose TCP connections the init container redirects to kv_port.
    """

    name: str
    deployment: str
    namespace: str = "default"
    gateway: str
    tls: TLSFiles
    tuning: LinkTuning = LinkTuning()
    mode: EndpointMode = EndpointMode.CONNECT
    kv_host: str = "127.0.0.1"
    kv_port: int = Field(gt=0, lt=65536)
    http_host: str = "0.0.0.0"
    http_port: int = Field(gt=0, lt=65536, description="/healthz and /metrics")
    engine_url: str = "http://127.0.0.1:8000"
    redirect_cidrs: tuple[str, ...] = ()
    run_as_uid: int = 65533
    """Traffic of this user is never redirected (it is the endpoint's own)."""


def load_config(model: type[M], path: str | Path) -> M:
    """Read a JSON configuration file. Raises InvalidInput that names file and field."""
    try:
        raw = json.loads(Path(path).read_text())
    except OSError as error:
        raise InvalidInput("--config", str(path), f"cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise InvalidInput("--config", str(path), f"is not JSON: {error.msg} in line {error.lineno}") from error
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{path}: {field}", first.get("input"), first["msg"]) from error
