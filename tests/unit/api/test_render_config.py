"""Wire configurations: every field of the specs that a process needs arrives, in the process's units."""

from __future__ import annotations

import pytest
from tests.unit.api.samples import deployment, link

from pdd.api.config import EndpointMode, Endpoints, HandoffMode
from pdd.api.render_config import (
    RouterAddresses,
    allow_entry,
    build_endpoint_config,
    build_gateway_config,
    build_link_tuning,
    build_router_config,
    endpoint_tls_files,
    gateway_tls_files,
)
from pdd.common.errors import InvalidInput

ADDRESSES = RouterAddresses(
    prefill=Endpoints(dns="tiny-prefill.chat:8000"),
    relay_decode=Endpoints(dns="tiny-relay-decode.chat:8000"),
    gateway="http://b-gateway.links:8081",
)


def test_the_router_gets_its_policy_and_the_lines_figures() -> None:
    spec = {
        "model": {"servedNames": ["tiny", "t"], "maxContextTokens": 8192, "kv": {"stateBytes": 7, "blockSize": 32}},
        "router": {
            "relayThresholdMs": 150,
            "handoffMode": "CatchUp",
            "oneShotLimitTokens": 32,
            "abnormalTraffic": {"policy": "Normal", "maxOutputTokens": 9, "minTransferMs": 8},
            "limits": {
                "maxConcurrent": 1,
                "maxQueued": 2,
                "maxRelaySessions": 3,
                "requestTimeoutS": 400,
                "connectTimeoutMs": 5,
                "firstTokenTimeoutS": 6,
                "tokenTimeoutS": 7,
                "maxBodyMiB": 8,
            },
            "pipelineOverrides": "Allow",
        },
    }
    made = build_router_config(
        deployment(spec, namespace="chat"),
        link({"lanes": {"bulk": {"rateCapMbps": 95}}}, namespace="links"),
        ADDRESSES,
        drain_token="t0",
    )
    assert (made.deployment, made.namespace, made.served_model_names) == ("tiny", "chat", ("tiny", "t"))
    assert made.kv.model_dump() == {"bytes_per_token": 4096, "state_bytes": 7, "block_size": 32}
    assert (made.link.capacity_bps, made.link.rtt_ms) == (95_000_000, 20)
    assert (made.relay_threshold_ms, made.handoff_mode, made.one_shot_limit_tokens) == (150, HandoffMode.CATCH_UP, 32)
    assert made.abnormal.model_dump() == {"enabled": False, "max_output_tokens": 9, "min_transfer_ms": 8}
    assert made.limits.model_dump() == {
        "max_concurrent": 1,
        "max_queued": 2,
        "max_relay_sessions": 3,
        "request_timeout_s": 400,
        "connect_timeout_ms": 5,
        "first_token_timeout_s": 6,
        "token_timeout_s": 7,
        "max_body_bytes": 8 * 1024 * 1024,
    }
    assert made.allow_overrides and made.drain_token == "t0" and made.gateway == ADDRESSES.gateway
    assert made.max_context_tokens == 8192 and made.tokenizer == "bytes"


def test_defaults_of_the_resource_and_of_the_wire_agree() -> None:
    from pdd.api.config import AbnormalTraffic, RouterConfig, RouterLimits

    made = build_router_config(deployment(), link(), ADDRESSES)
    assert made.limits == RouterLimits() and made.abnormal == AbnormalTraffic()
    for name in ("relay_threshold_ms", "handoff_mode", "one_shot_limit_tokens", "allow_overrides"):
        assert getattr(made, name) == RouterConfig.model_fields[name].default, name


def test_an_unknown_kv_law_stops_the_router_configuration() -> None:
    with pytest.raises(InvalidInput, match="bytesPerToken"):
        build_router_config(deployment({"engine": {"type": "vllm"}}), link(), ADDRESSES)


def test_with_transport_direct_the_router_has_no_gateway() -> None:
    assert build_router_config(deployment(), link({"transport": "Direct"}), ADDRESSES).gateway == ""


def test_both_ends_of_the_line_use_it_alike() -> None:
    made = link({"streams": 8, "congestionControl": "CUBIC", "lanes": {"fast": {"dscp": 10}}}, namespace="links")
    tuning = build_link_tuning(made)
    assert (tuning.streams, tuning.rate_bps, tuning.rtt_ms) == (8, 100_000_000, 20)
    assert (tuning.congestion_control, tuning.fast_dscp) == ("cubic", 10)
    gateway = build_gateway_config(made, tls=gateway_tls_files(made), allow=("10.0.0.0/8:8001-8001",))
    endpoint = build_endpoint_config(
        deployment(), made, name="tiny-main-decode-0", gateway="a:31443", tls=endpoint_tls_files(made)
    )
    assert gateway.tuning == endpoint.tuning == tuning


def test_each_end_demands_the_others_name() -> None:
    made = link(namespace="links")
    assert gateway_tls_files(made).peer_name == "endpoint.b.links.pdd.internal"
    assert endpoint_tls_files(made, "/x").peer_name == "gateway.b.links.pdd.internal"
    assert endpoint_tls_files(made, "/x").cert == "/x/tls.crt"


def test_the_gateway_lets_endpoints_reach_the_kv_ports_only() -> None:
    vllm = deployment({"engine": {"type": "vllm"}, "model": {"kv": {"bytesPerToken": 1}}})
    assert allow_entry(deployment(), "10.244.0.0/16") == "10.244.0.0/16:8001-8001"
    assert allow_entry(vllm, "10.244.0.0/16") == "10.244.0.0/16:8001-8017"
    assert allow_entry(deployment(), "127.0.0.1/32", 9301, 9303) == "127.0.0.1/32:9301-9303"


def test_only_a_redirecting_endpoint_redirects() -> None:
    arguments = {"name": "m", "gateway": "a:1", "tls": endpoint_tls_files(link()), "redirect_cidrs": ("10.0.0.0/8",)}
    redirect = build_endpoint_config(deployment(), link(), **arguments)  # type: ignore[arg-type]
    assert (redirect.mode, redirect.redirect_cidrs) == (EndpointMode.REDIRECT, ("10.0.0.0/8",))
    connect = link({"endpoint": {"capture": "Connect"}})
    made = build_endpoint_config(deployment(), connect, **arguments)  # type: ignore[arg-type]
    assert (made.mode, made.redirect_cidrs) == (EndpointMode.CONNECT, ())
    forced = build_endpoint_config(deployment(), link(), mode=EndpointMode.CONNECT, **arguments)  # type: ignore[arg-type]
    assert forced.mode is EndpointMode.CONNECT
