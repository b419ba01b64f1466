"""The kernel's line: a veth pair between the nodes, netem on both ends, nftables for partitions and port filters.

Unlike the TUN devices, the pair outlives a process that is killed hard; it goes with the nodes.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from e2e.wan.line import LineSettings
from e2e.wan.packets import Filter
from e2e.wan.tun import DEVICE, End, command, inside

TABLE = "pdd_wan"
PACKET_BYTES = 1500


def available() -> bool:
    """Does this kernel have netem? Tried in a network namespace of its own, which goes when the command ends."""
    words = ["unshare", "-n", "sh", "-c", "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"]
    try:
        return subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def build_netem(settings: LineSettings) -> list[str]:
    """Arguments of `tc qdisc ... netem`. The limit counts packets: those that wait, and those on their way."""
    on_the_way = settings.bytes_per_s * (settings.delay_ms + settings.jitter_ms) / 1000
    limit = max(100, int((settings.queue_limit_bytes + on_the_way) / PACKET_BYTES))
    words = ["netem", "limit", str(limit), "delay", f"{settings.delay_ms:g}ms"]
    if settings.jitter_ms:
        words.append(f"{settings.jitter_ms:g}ms")
    if settings.loss:
        words += ["loss", f"{settings.loss * 100:g}%"]
    return [*words, "rate", f"{int(settings.mbps * 1000)}kbit"]


def build_ruleset(new: Filter) -> str:
    """The nftables table for one end: what leaves through the line is counted, then let through or dropped."""
    match = "    meta l4proto { tcp, udp } th"
    lines = [f"table inet {TABLE} {{"]
    lines += [f"  counter port_{port} {{ }}" for port in sorted(new.counted)]
    lines += ["  counter dropped { }", "  chain line {"]
    if new.partitioned:
        lines.append('    counter name "dropped" drop')
    if new.blocked:
        lines += [f'{match} {side} {_group(new.blocked)} counter name "dropped" drop' for side in ("sport", "dport")]
    for port in sorted(new.counted):
        lines += [f'{match} {side} {port} counter name "port_{port}"' for side in ("sport", "dport")]
    if new.only:
        lines += [f"{match} {side} {_group(new.only)} accept" for side in ("sport", "dport")]
        lines.append('    counter name "dropped" drop')
    lines.append("  }")
    for hook in ("output", "forward"):
        lines.append(f'  chain {hook} {{ type filter hook {hook} priority 0; oifname "{DEVICE}" jump line; }}')
    return "\n".join([*lines, "}"]) + "\n"


def _group(ports: frozenset[int]) -> str:
    return "{ " + ", ".join(map(str, sorted(ports))) + " }"


class NetemLine:
    """Both directions, shaped by the kernel. The owner has nothing to wait for."""

    backend = "netem"

    def __init__(self, ends: tuple[End, End], settings: LineSettings) -> None:
        self.ends = ends
        self.settings = settings
        self.filter = Filter()
        self.fds: list[int] = []
        self._before: dict[tuple[int, str], int] = {}  # counters of earlier rulesets, by end and counter
        a, b = ends
        command("ip", "link", "add", "pddwan0", "type", "veth", "peer", "name", "pddwan1")
        for side, (end, peer) in enumerate(((a, b), (b, a))):
            command("ip", "link", "set", f"pddwan{side}", "netns", str(end.pid), "name", DEVICE)
            inside(end, "ip", "address", "add", end.address, "peer", f"{peer.address}/32", "dev", DEVICE)
            inside(end, "ip", "link", "set", DEVICE, "mtu", "1500", "up")
        self.configure(settings)
        self.restrict(Filter())

    def configure(self, settings: LineSettings) -> None:
        for end in self.ends:
            inside(end, "tc", "qdisc", "replace", "dev", DEVICE, "root", *build_netem(settings))
        self.settings = settings

    def restrict(self, new: Filter) -> None:
        self._before = self._totals()
        # Declaring, deleting and declaring again makes one atomic replacement, whether or not the table was there.
        text = f"table inet {TABLE} {{ }}\ndelete table inet {TABLE}\n{build_ruleset(new)}"
        for end in self.ends:
            words = ["nsenter", "-t", str(end.pid), "-n", "nft", "-f", "-"]
            subprocess.run(words, input=text, text=True, check=True, capture_output=True, timeout=20)
        self.filter = new

    def _totals(self) -> dict[tuple[int, str], int]:
        totals = dict(self._before)
        for side, end in enumerate(self.ends):
            for item in self._json(end, "nft", "-j", "list", "counters", "table", "inet", TABLE).get("nftables", []):
                if counter := item.get("counter"):
                    name = str(counter["name"])
                    unit = "packets" if name == "dropped" else "bytes"
                    totals[side, name] = self._before.get((side, name), 0) + int(counter[unit])
        return totals

    def _json(self, end: End, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            ["nsenter", "-t", str(end.pid), "-n", *words], capture_output=True, timeout=20, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}

    def stats(self) -> dict[str, object]:
        totals = self._totals()
        out: dict[str, object] = {}
        for side, (name, end) in enumerate(zip(("a_to_b", "b_to_a"), self.ends, strict=True)):
            words = ["nsenter", "-t", str(end.pid), "-n", "tc", "-s", "-j", "qdisc", "show", "dev", DEVICE]
            done = subprocess.run(words, capture_output=True, timeout=20, check=True)
            qdisc = next(item for item in json.loads(done.stdout) if item["kind"] == "netem")
            out[name] = {
                "bytes": qdisc["bytes"],
                "packets": qdisc["packets"],
                "dropped_queue": qdisc["drops"],
                "dropped_loss": 0,  # netem counts its losses among the drops
                "dropped_filter": totals.get((side, "dropped"), 0),
                "backlog_bytes": qdisc.get("backlog", 0),
            }
        names = sorted({name for _, name in totals if name.startswith("port_")})
        out["ports"] = {
            name.removeprefix("port_"): {"a_to_b": totals.get((0, name), 0), "b_to_a": totals.get((1, name), 0)}
            for name in names
        }
        return out

    def wait_s(self) -> float | None:
        return None

    def turn(self, readable: list[int]) -> None:
        """Nothing: the kernel moves the packets."""

    def close(self) -> None:
        for end in self.ends:
            for words in (("ip", "link", "delete", DEVICE), ("nft", "delete", "table", "inet", TABLE)):
                done = ["nsenter", "-t", str(end.pid), "-n", *words]
                subprocess.run(done, capture_output=True, timeout=20, check=False)
