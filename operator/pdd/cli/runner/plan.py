"""From a deployment to local processes: which, with which ports, arguments and configuration files. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pdd.api.base import Model
from pdd.api.config import EndpointMode, Endpoints
from pdd.api.deployment import Role
from pdd.api.engines import engine_command, engine_params
from pdd.api.linkspec import Transport
from pdd.api.render_config import (
    RouterAddresses,
    allow_entry,
    build_endpoint_config,
    build_gateway_config,
    build_router_config,
    endpoint_tls_files,
    endpoint_tls_name,
    gateway_tls_files,
    gateway_tls_name,
)
from pdd.cli.runner.process import ProcessSpec
from pdd.cli.runner.spec import LocalSpec
from pdd.common.errors import InvalidInput

HOST = "127.0.0.1"
_PREFIX = {Role.PREFILL: "p", Role.RELAY_DECODE: "rld", Role.MAIN_DECODE: "md"}
_ENV = {"PDD_LOG_FORMAT": "text", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """One engine: its log's name (`p-0`), and where it listens on loopback."""

    role: Role
    name: str
    port: int
    kv_port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The link's end beside one MD. `kv_port` is its CONNECT proxy."""

    engine: LocalEngine
    kv_port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"


@dataclass(frozen=True, slots=True)
class StackPlan:
    """All that one run needs. `files` maps a name in the run folder to text; `tls_names` a folder in it to the DNS name
    of the certificate that belongs there."""

    spec: LocalSpec
    engines: tuple[LocalEngine, ...]
    endpoints: tuple[LocalEndpoint, ...]
    processes: tuple[ProcessSpec, ...]
    files: Mapping[str, str]
    tls_names: Mapping[str, str]
    router_url: str
    gateway_url: str
    line_url: str
    """Control of the emulated line: GET /stats, POST /partition, POST /heal."""


def count_ports(spec: LocalSpec) -> int:
    """Free ports that `plan_stack` takes beside the router's: two an engine, two an endpoint, four for the line."""
    replicas = {role: spec.deployment.role(role).replicas for role in Role}
    return 2 * sum(replicas.values()) + 2 * replicas[Role.MAIN_DECODE] + 4


def plan_stack(spec: LocalSpec, *, router_port: int, ports: list[int], folder: Path) -> StackPlan:
    """Both sites on this machine, with the emulated line between endpoints and gateway.

    `ports` are `count_ports(spec)` free ones. Raises InvalidInput for what only a cluster can run.
    """
    deployment, link = spec.deployment, spec.link
    if link.spec.transport is not Transport.GATEWAY:
        raise InvalidInput("spec.transport", link.spec.transport.value, "local processes need Gateway")
    free = iter(ports)
    engines = tuple(_engines(spec, free))
    endpoints = tuple(LocalEndpoint(e, next(free), next(free)) for e in engines if e.role is Role.MAIN_DECODE)
    line_port, line_control, gateway_line, gateway_http = next(free), next(free), next(free), next(free)
    gateway_url = f"http://{HOST}:{gateway_http}"

    def urls(role: Role) -> Endpoints:
        return Endpoints(urls=tuple(engine.url for engine in engines if engine.role is role))

    addresses = RouterAddresses(prefill=urls(Role.PREFILL), relay_decode=urls(Role.RELAY_DECODE), gateway=gateway_url)
    kv_ports = [engine.kv_port for engine in engines if engine.role is Role.PREFILL]
    files = {
        "router.json": _json(build_router_config(deployment, link, addresses)),
        "gateway.json": _json(
            build_gateway_config(
                link,
                tls=gateway_tls_files(link, str(folder / "gateway-tls")),
                allow=tuple(allow_entry(deployment, f"{HOST}/32", port) for port in kv_ports),
                host=HOST,
                line_port=gateway_line,
                http_port=gateway_http,
            )
        ),
    }
    for endpoint in endpoints:
        files[f"endpoint-{endpoint.engine.name}.json"] = _json(
            build_endpoint_config(
                deployment,
                link,
                name=endpoint.engine.name,
                gateway=f"{HOST}:{line_port}",
                tls=endpoint_tls_files(link, str(folder / "endpoint-tls")),
                mode=EndpointMode.CONNECT,  # a redirect would need NET_ADMIN
                kv_port=endpoint.kv_port,
                http_host=HOST,
                http_port=endpoint.http_port,
                engine_url=endpoint.engine.url,
            )
        )
    proxies = {endpoint.engine.name: f"http://{HOST}:{endpoint.kv_port}" for endpoint in endpoints}
    line = spec.link.spec.line
    processes = [_engine_process(spec, engine, proxies.get(engine.name, "")) for engine in engines]
    processes.append(_module("gateway", "pdd.link", "gateway", "--config", str(folder / "gateway.json")))
    processes.append(
        _module(
            "line", "pdd.link", "emulate-line",
            *("--listen", f"{HOST}:{line_port}", "--to", f"{HOST}:{gateway_line}"),
            *("--rtt-ms", str(line.rtt_ms), "--mbps", str(line.capacity_mbps), "--control", str(line_control)),
        )
    )  # fmt: skip
    for endpoint in endpoints:
        name = f"endpoint-{endpoint.engine.name}"
        processes.append(_module(name, "pdd.link", "endpoint", "--config", str(folder / f"{name}.json")))
    router_args = ("--config", str(folder / "router.json"), "--host", HOST, "--port", str(router_port))
    processes.append(_module("router", "pdd.router", *router_args))
    return StackPlan(
        spec=spec,
        engines=engines,
        endpoints=endpoints,
        processes=tuple(processes),
        files=files,
        tls_names={
            "gateway-tls": gateway_tls_name(link.name, link.namespace),
            "endpoint-tls": endpoint_tls_name(link.name, link.namespace),
        },
        router_url=f"http://{HOST}:{router_port}",
        gateway_url=gateway_url,
        line_url=f"http://{HOST}:{line_control}",
    )


def _engines(spec: LocalSpec, free: Iterator[int]) -> Iterator[LocalEngine]:
    for role, prefix in _PREFIX.items():
        for index in range(spec.deployment.role(role).replicas):
            yield LocalEngine(role, f"{prefix}-{index}", next(free), next(free))


def _engine_process(spec: LocalSpec, engine: LocalEngine, kv_proxy: str) -> ProcessSpec:
    params = engine_params(
        spec.deployment,
        engine.role,
        host=HOST,
        http_port=engine.port,
        kv_port=engine.kv_port,
        advertise_host=HOST,
        kv_proxy=kv_proxy,
        python=sys.executable,
    )
    command = engine_command(params)
    return ProcessSpec(engine.name, (*command.command, *command.args), {**_ENV, **command.env_values()})


def module_argv(module: str, *args: str) -> tuple[str, ...]:
    """The command line of a Python module of this installation."""
    return (sys.executable, "-m", module, *args)


def _module(name: str, module: str, *args: str) -> ProcessSpec:
    return ProcessSpec(name, module_argv(module, *args), _ENV)


def _json(model: Model) -> str:
    return model.model_dump_json(by_alias=True, indent=2)
