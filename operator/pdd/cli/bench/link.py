"""`pdd bench link`: the link's own bench, as a document and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def bench_link(
    *, line: str, rtt_ms: float, mbps: float, streams: Sequence[int], rounds: int, line_mbps: float
) -> dict[str, Any]:
    """The document of `pdd bench link --json`. Blocks until measured; its processes end with it."""
    from pdd.link.bench import run

    figures = run(line=line, rtt_ms=rtt_ms, rate_mbps=mbps, streams=tuple(streams), rounds=rounds, line_mbps=line_mbps)
    return {"apiVersion": "pdd.dev/v1alpha1", "kind": "LinkBench", **figures}


def link_rows(document: dict[str, Any]) -> list[list[str]]:
    """Shares of the cap and the fast lane's delay, link and plain TCP side by side; header first."""
    rows = [
        [
            "share of the cap, first and last round",
            "one object",
            "many objects",
            "fast lane idle p50/p99",
            "under bulk p50/p99",
        ]
    ]
    for count, figures in document["link_by_streams"].items():
        lane = figures["fast_lane_ms"]
        rows.append(
            [
                f"link, {count} stream{'s' if count != '1' else ''}",
                _share(figures["one_object"]),
                _share(figures["many_objects"]),
                _delay(lane["idle"]),
                _delay(lane["under_bulk"]),
            ]
        )
    for name, figures in document["plain"].items():
        connections = name.rpartition("_")[2]
        rows.append([f"plain TCP, {connections}", _share(figures), "-", "-", "-"])
    return rows


def _share(figures: dict[str, Any]) -> str:
    """First round (with slow start) and last (steady)."""
    if "first_share" not in figures:
        return f"{figures['first_bps'] / 1e6:.0f}, {figures['last_bps'] / 1e6:.0f} Mbit/s"
    return f"{100 * figures['first_share']:.1f} %, {100 * figures['last_share']:.1f} %"


def _delay(figures: dict[str, Any]) -> str:
    return f"{figures['p50']:.1f} / {figures['p99']:.1f} ms"
