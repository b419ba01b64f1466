"""`python -m pdd.router --config router.json --host H --port P`."""

from __future__ import annotations

import argparse
import logging
import sys

import uvicorn

from pdd.api.config import RouterConfig, load_config
from pdd.common.clock import monotonic_s
from pdd.common.errors import InvalidInput
from pdd.common.logging import setup_logging
from pdd.engine.adapters import adapter_for
from pdd.engine.tokenizers import load_tokenizer
from pdd.router.app import App
from pdd.router.client import Client
from pdd.router.discovery import fixed_addresses
from pdd.router.fleet import Fleet
from pdd.router.metrics import Metrics
from pdd.router.planning import Planner
from pdd.router.services import Services
from pdd.router.serving import uvicorn_config
from pdd.router.target import parse_host_port, parse_url

_log = logging.getLogger("pdd.router")


def build_services(config: RouterConfig) -> Services:
    """All that the app stands on, checked. Raises InvalidInput naming the field."""
    for field, endpoints in (
        ("prefill", config.prefill), ("relayDecode", config.relay_decode), ("mainDecode", config.main_decode)
    ):  # fmt: skip
        if endpoints.urls and endpoints.dns:
            raise InvalidInput(field, endpoints.dns, "give urls or dns, not both")
        if endpoints.dns:
            parse_host_port(f"{field}.dns", endpoints.dns)
        fixed_addresses(f"{field}.urls", endpoints.urls)
    if config.gateway:
        parse_url("gateway", config.gateway)
    fleet = Fleet(
        relay_sessions_max=config.limits.max_relay_sessions,
        capacity_bps=float(config.link.capacity_bps),
        rtt_s=config.link.rtt_ms / 1000,
    )
    return Services(
        config=config,
        clock=monotonic_s,
        client=Client(connect_timeout_s=config.limits.connect_timeout_ms / 1000),
        adapter=adapter_for(config.engine, config.served_model_names[0]),
        tokenizer=load_tokenizer(config.tokenizer),
        fleet=fleet,
        planner=Planner(config, fleet),
        metrics=Metrics(),
    )


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM. Returns the exit code: 0 clean, 2 a wrong flag or configuration, 1 cannot listen."""
    parser = argparse.ArgumentParser(prog="python -m pdd.router", description="Route requests through P, RLD and MD.")
    parser.add_argument("--config", required=True, help="RouterConfig, a JSON file")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8080)
    flags = parser.parse_args(argv)
    setup_logging()
    try:
        if not 0 < flags.port < 65536:
            raise InvalidInput("--port", flags.port, "must be from 1 to 65535")
        config = load_config(RouterConfig, flags.config)
        services = build_services(config)
    except InvalidInput as error:
        print(f"pdd.router: {error.message}", file=sys.stderr)
        return 2
    fields = {
        "listen": f"{flags.host}:{flags.port}",
        "deployment": config.deployment,
        "engine": config.engine.value,
        "gateway": config.gateway or "-",
        "models": ",".join(config.served_model_names),
    }
    _log.info("router starts", extra={"fields": fields})
    server = uvicorn.Server(uvicorn_config(App(services), flags.host, flags.port))
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
