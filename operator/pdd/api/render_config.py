"""Wire configurations from the specs: pure builders, used by the controller (ConfigMaps) and by `pdd up` (files).

Addresses and ports are arguments: they differ between pods and local processes; everything else does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pdd.api.config import (
    AbnormalTraffic,
    EndpointConfig,
    EndpointMode,
    Endpoints,
    GatewayConfig,
    LinkExpectation,
    LinkTuning,
    RouterConfig,
    RouterLimits,
    TLSFiles,
)
from pdd.api.deployment import AbnormalPolicy, OverridePolicy, RouterLimitsSpec
from pdd.api.engines import HTTP_PORT, capabilities, kv_layout, kv_port_range, served_names, tokenizer_name
from pdd.api.linkspec import KVCapture, Transport
from pdd.api.v1alpha1 import PDDDeployment, PDDLink

BITS_PER_MEGABIT = 1_000_000
BYTES_PER_MIB = 1024 * 1024
TLS_FOLDER = "/etc/pdd/tls"
GATEWAY_LINE_PORT = 7443
GATEWAY_HTTP_PORT = 8081
ENDPOINT_KV_PORT = 15001
ENDPOINT_HTTP_PORT = 8082


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterAddresses:
    """Where the router finds everything. gateway: base URL, empty with transport Direct (then main_decode is set)."""

    prefill: Endpoints
    relay_decode: Endpoints
    gateway: str = ""
    main_decode: Endpoints = field(default_factory=Endpoints)


def gateway_tls_name(link_name: str, namespace: str) -> str:
    """DNS name in the gateway's certificate; endpoints demand it. Not resolvable, so it cannot clash."""
    return f"gateway.{link_name}.{namespace}.pdd.internal"


def endpoint_tls_name(link_name: str, namespace: str) -> str:
    """DNS name in every endpoint certificate of the link; the gateway demands it."""
    return f"endpoint.{link_name}.{namespace}.pdd.internal"


def gateway_tls_files(link: PDDLink, folder: str = TLS_FOLDER) -> TLSFiles:
    """PEM files of the gateway in `folder`, named as in a kubernetes.io/tls Secret."""
    return _tls_files(folder, endpoint_tls_name(link.name, link.namespace))


def endpoint_tls_files(link: PDDLink, folder: str = TLS_FOLDER) -> TLSFiles:
    """PEM files of an endpoint in `folder`."""
    return _tls_files(folder, gateway_tls_name(link.name, link.namespace))


def build_router_config(
    deployment: PDDDeployment, link: PDDLink, addresses: RouterAddresses, *, drain_token: str = ""
) -> RouterConfig:
    """The router's configuration. Raises InvalidInput if the engine type is not built or its KV law is unknown."""
    spec = deployment.spec
    router = spec.router
    return RouterConfig(
        deployment=deployment.name,
        namespace=deployment.namespace,
        served_model_names=served_names(spec.model),
        engine=spec.engine.type,
        capabilities=capabilities(spec.engine.type, spec.engine.kv_connector),
        tokenizer=tokenizer_name(deployment),
        max_context_tokens=spec.model.max_context_tokens,
        kv=kv_layout(deployment),
        prefill=addresses.prefill,
        relay_decode=addresses.relay_decode,
        gateway=addresses.gateway if link.spec.transport is Transport.GATEWAY else "",
        main_decode=addresses.main_decode,
        link=LinkExpectation(
            capacity_bps=link.spec.rate_cap_mbps * BITS_PER_MEGABIT,
            rtt_ms=link.spec.line.rtt_ms,
        ),
        relay_threshold_ms=router.relay_threshold_ms,
        handoff_mode=router.handoff_mode,
        one_shot_limit_tokens=router.one_shot_limit_tokens,
        abnormal=AbnormalTraffic(
            enabled=router.abnormal_traffic.policy is AbnormalPolicy.RELAY_TO_END,
            max_output_tokens=router.abnormal_traffic.max_output_tokens,
            min_transfer_ms=router.abnormal_traffic.min_transfer_ms,
        ),
        limits=_limits(router.limits),
        allow_overrides=router.pipeline_overrides is OverridePolicy.ALLOW,
        drain_token=drain_token,
    )


def build_link_tuning(link: PDDLink) -> LinkTuning:
    """How both ends use the line."""
    return LinkTuning(
        streams=link.spec.streams,
        rate_bps=link.spec.rate_cap_mbps * BITS_PER_MEGABIT,
        rtt_ms=link.spec.line.rtt_ms,
        congestion_control=link.spec.congestion_control.value.lower(),
        fast_dscp=link.spec.lanes.fast.dscp,
    )


def build_gateway_config(
    link: PDDLink,
    *,
    tls: TLSFiles,
    allow: tuple[str, ...],
    host: str = "0.0.0.0",
    line_port: int = GATEWAY_LINE_PORT,
    http_port: int = GATEWAY_HTTP_PORT,
) -> GatewayConfig:
    """The gateway's configuration. allow: see `allow_entry`."""
    return GatewayConfig(
        name=link.name,
        host=host,
        line_port=line_port,
        http_port=http_port,
        tls=tls,
        tuning=build_link_tuning(link),
        allow=allow,
    )


def allow_entry(deployment: PDDDeployment, cidr: str, *ports: int) -> str:
    """`CIDR:low-high` of a deployment's KV ports; ports: the engines' kv ports if not the default."""
    ranges = [kv_port_range(deployment.spec.engine.type, *((port,) if port else ())) for port in ports or (0,)]
    return f"{cidr}:{min(low for low, _ in ranges)}-{max(high for _, high in ranges)}"


def build_endpoint_config(
    deployment: PDDDeployment,
    link: PDDLink,
    *,
    name: str,
    gateway: str,
    tls: TLSFiles,
    redirect_cidrs: tuple[str, ...] = (),
    mode: EndpointMode | None = None,
    kv_host: str = "127.0.0.1",
    kv_port: int = ENDPOINT_KV_PORT,
    http_host: str = "0.0.0.0",
    http_port: int = ENDPOINT_HTTP_PORT,
    engine_url: str = f"http://127.0.0.1:{HTTP_PORT}",
) -> EndpointConfig:
    """The configuration of the endpoint beside one MD. gateway: `host:port` to dial. mode: None takes the link's."""
    capture = link.spec.endpoint_or_default.capture
    chosen = mode or (EndpointMode.CONNECT if capture is KVCapture.CONNECT else EndpointMode.REDIRECT)
    return EndpointConfig(
        name=name,
        deployment=deployment.name,
        namespace=deployment.namespace,
        gateway=gateway,
        tls=tls,
        tuning=build_link_tuning(link),
        mode=chosen,
        kv_host=kv_host,
        kv_port=kv_port,
        http_host=http_host,
        http_port=http_port,
        engine_url=engine_url,
        redirect_cidrs=redirect_cidrs if chosen is EndpointMode.REDIRECT else (),
    )


def _limits(limits: RouterLimitsSpec) -> RouterLimits:
    return RouterLimits(
        max_concurrent=limits.max_concurrent,
        max_queued=limits.max_queued,
        max_relay_sessions=limits.max_relay_sessions,
        request_timeout_s=limits.request_timeout_s,
        connect_timeout_ms=limits.connect_timeout_ms,
        first_token_timeout_s=limits.first_token_timeout_s,
        token_timeout_s=limits.token_timeout_s,
        max_body_bytes=limits.max_body_mib * BYTES_PER_MIB,
    )


def _tls_files(folder: str, peer_name: str) -> TLSFiles:
    return TLSFiles(cert=f"{folder}/tls.crt", key=f"{folder}/tls.key", ca=f"{folder}/ca.crt", peer_name=peer_name)
