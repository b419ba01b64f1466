"""usage: python -m e2e.wan run PID_A ADDRESS_A PID_B ADDRESS_B --control SOCKET [--delay-ms 10 --mbps 1000 ...]
       python -m e2e.wan [--control SOCKET] stats|partition|heal|quit
       python -m e2e.wan [--control SOCKET] block|only|count PORT...
       python -m e2e.wan [--control SOCKET] set delay_ms=40 mbps=100

PID names a network namespace: docker inspect -f '{{.State.Pid}}' pdd-a-control-plane. Without --control: the one of the
clusters that `python -m e2e.clusters up` made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from e2e import paths
from e2e.wan import netem, tun
from e2e.wan.client import Wan, WanError
from e2e.wan.line import LineSettings
from e2e.wan.server import Line, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.wan", usage=__doc__)
    parser.add_argument("command")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--control", type=Path, default=paths.cache() / "state" / "wan.sock")
    parser.add_argument("--backend", choices=["auto", "tun", "netem"], default="auto")
    defaults = LineSettings()
    for name in ("delay_ms", "jitter_ms", "mbps", "loss"):
        parser.add_argument("--" + name.replace("_", "-"), type=float, default=getattr(defaults, name))
    parser.add_argument("--queue-bytes", type=int, default=defaults.queue_bytes)
    args = parser.parse_args()
    try:
        return run(args) if args.command == "run" else ask(args)
    except ValueError as error:
        print(f"wan: {error}", file=sys.stderr)
        return 2
    except (WanError, OSError) as error:
        print(f"wan: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"wan: {' '.join(error.cmd)}: {error.stderr}", file=sys.stderr)
        return 1


def run(args: argparse.Namespace) -> int:
    if len(args.words) != 4:
        raise ValueError("run: needs PID_A ADDRESS_A PID_B ADDRESS_B")
    pid_a, address_a, pid_b, address_b = args.words
    ends = tun.End(int(pid_a), address_a), tun.End(int(pid_b), address_b)
    settings = LineSettings(args.delay_ms, args.jitter_ms, args.mbps, args.loss, args.queue_bytes)
    kernel = args.backend == "netem" or (args.backend == "auto" and netem.available())
    line: Line = netem.NetemLine(ends, settings) if kernel else tun.TunLine(ends, settings)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # a line that is late because the tests are busy measures nothing
    except PermissionError:
        print("wan: cannot raise the priority: delays may grow on a busy machine", file=sys.stderr)
    serve(line, args.control)
    return 0


def ask(args: argparse.Namespace) -> int:
    values: dict[str, object] = {}
    if args.command == "set":
        for word in args.words:
            name, _, value = word.partition("=")
            values[name] = int(float(value)) if name == "queue_bytes" else float(value)
    elif args.words:
        values["ports"] = [int(word) for word in args.words]
    wan = Wan(args.control, 0, 0)
    if args.command == "quit":
        try:
            wan.ask("quit")
        except WanError as error:
            if "process ended" not in str(error):
                raise
        return 0
    print(json.dumps(wan.ask(args.command, **values), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
