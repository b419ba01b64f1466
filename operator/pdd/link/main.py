"""The link's command line: flags to functions, errors to exit codes."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from pdd.api.config import EndpointConfig, GatewayConfig, load_config
from pdd.common.errors import Forbidden, InvalidInput, PDDError, Unreachable
from pdd.common.logging import setup_logging

STOP_TIMEOUT_S = 4.0


class Service(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


async def serve(service: Service, *, ready: bool = False) -> None:
    """Run until SIGTERM or SIGINT, then stop within STOP_TIMEOUT_S. `ready`: say so on standard output."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await service.start()
    if ready:
        print("ready", flush=True)
    try:
        await stop.wait()
    finally:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await service.stop()


def run(service: Service, *, ready: bool = False) -> int:
    """Serve on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(service, ready=ready))
    return 0


def emulate(args: argparse.Namespace) -> int:
    """Run an emulated line; prints `ready` on standard output once it serves."""
    from pdd.link.allow import parse_target
    from pdd.link.emulate import EmulatedLine, LineSpec

    for field, value in (("--rtt-ms", args.rtt_ms), ("--mbps", args.mbps)):
        if not 0 <= value < 1e6:
            raise InvalidInput(field, value, "give a number from 0 to 1000000")
    spec = LineSpec.of(args.rtt_ms, args.mbps)
    return run(EmulatedLine(spec, parse_target(args.listen), parse_target(args.to), args.control), ready=True)


def add_bench(commands: Any) -> None:
    """The flags of `bench`."""
    one = commands.add_parser("bench", help="goodput and the fast lane's delay, beside plain TCP; JSON on stdout")
    one.add_argument("--json", action="store_true", help="accepted for symmetry: the output always is JSON")
    one.add_argument("--line", default="emulated", choices=["emulated", "loopback", "given"])
    one.add_argument("--rtt-ms", type=float, default=20.0)
    one.add_argument("--mbps", type=float, default=95.0, help="the link's cap; 0: none")
    one.add_argument("--line-mbps", type=float, default=100.0, help="rate of an emulated line; 0: the cap")
    one.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    one.add_argument("--rounds", type=int, default=2)
    one.add_argument("--object-s", type=float, default=3.0, help="size of an object, in seconds of the cap")
    one.add_argument("--congestion-control", default="bbr")
    for side in "ab":
        one.add_argument(f"--prefix-{side}", default="", help=f"before {side.upper()}'s commands: ip netns exec NAME")
        one.add_argument(f"--host-{side}", default="127.0.0.1", help="address of that side, with --line given")


def bench(args: argparse.Namespace) -> int:
    """Measure and print one JSON document."""
    from pdd.link.bench import run as measure

    figures = measure(
        line=args.line,
        rtt_ms=args.rtt_ms,
        rate_mbps=args.mbps,
        line_mbps=args.line_mbps,
        streams=tuple(args.streams),
        rounds=args.rounds,
        object_s=args.object_s,
        congestion_control=args.congestion_control,
        prefix_a=tuple(args.prefix_a.split()),
        prefix_b=tuple(args.prefix_b.split()),
        host_a=args.host_a,
        host_b=args.host_b,
    )
    print(json.dumps(figures, indent=2))
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 done, 1 failed, 2 wrong usage or invalid input, 3 unreachable or forbidden."""
    parser = argparse.ArgumentParser(prog="python -m pdd.link", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("gateway", "A's end of the line"),
        ("endpoint", "B's end of the line, beside one engine"),
        ("init-redirect", "send the pod's connections to A to the endpoint (iptables), then exit"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--config", required=True, help="JSON file")
        if name == "endpoint":
            command.add_argument("--name", default="", help="replaces the file's name, which a set's pods share")
    line = commands.add_parser("emulate-line", help="a WAN in user space: delays and paces TCP connections")
    line.add_argument("--listen", required=True, metavar="HOST:PORT", help="where B dials in")
    line.add_argument("--to", required=True, metavar="HOST:PORT", help="where A listens")
    line.add_argument("--rtt-ms", type=float, default=20.0)
    line.add_argument("--mbps", type=float, default=100.0, help="of each direction, shared by all; 0: no limit")
    line.add_argument("--control", type=int, default=0, metavar="PORT", help="GET /stats, POST /partition /heal /reset")
    add_bench(commands)
    args = parser.parse_args(argv)
    setup_logging()
    try:
        if args.command == "gateway":
            from pdd.link.gateway import Gateway

            return run(Gateway(load_config(GatewayConfig, args.config)))
        if args.command == "endpoint":
            from pdd.link.endpoint import Endpoint

            config = load_config(EndpointConfig, args.config)
            return run(Endpoint(config.model_copy(update={"name": args.name}) if args.name else config))
        if args.command == "init-redirect":
            from pdd.link.redirect import apply_rules

            apply_rules(load_config(EndpointConfig, args.config))
            return 0
        if args.command == "bench":
            return bench(args)
        return emulate(args)
    except InvalidInput as error:
        print(f"{parser.prog} {args.command}: {error}", file=sys.stderr)
        return 2
    except (Unreachable, Forbidden) as error:
        print(f"{parser.prog} {args.command}: {error}", file=sys.stderr)
        return 3
    except PDDError as error:
        print(f"{parser.prog} {args.command}: {error}", file=sys.stderr)
        return 1
