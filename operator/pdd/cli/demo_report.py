"""What the demo found, as values: one record a request, the promises, the document and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdd.cli.chat import ChatRun
from pdd.cli.console import table

SECOND_TOKEN_LIMIT_MS = 300.0
"""The second token of a relayed request reaches the client within this time of the first."""


@dataclass(frozen=True, slots=True)
class LineFacts:
    """The emulated line: bits per second, round trip in ms, streams of the link over it."""

    rate_mbps: int
    rtt_ms: int
    streams: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One request: how it ran, the same prompt's tokens from one engine alone, and what the gateway counted on the
    bulk lane of the line meanwhile (bytes)."""

    name: str
    run: ChatRun
    single_token_ids: tuple[int, ...]
    kv_bytes_on_line: int

    @property
    def identical(self) -> bool:
        return self.run.token_ids == self.single_token_ids


def request_record(measured: Measured) -> dict[str, Any]:
    """One request's figures, as `pdd demo --json` prints them. Times in ms, sizes in bytes, `tokens` counts output."""
    run, trace = measured.run, measured.run.trace
    kv = trace.get("kv") or {}
    handoff = trace.get("handoff")
    keys = ("mode", "rounds", "tokens", "payload_bytes", "stall_ms")
    return {
        "name": measured.name,
        "pipeline": run.pipeline,
        "reason": run.reason,
        "prompt_tokens": trace.get("prompt_tokens"),
        "ttft_ms": round(run.ttft_ms, 1),
        "second_token_ms": None if run.second_token_ms is None else round(run.second_token_ms, 1),
        "tokens": len(run.token_ids),
        "producers": trace.get("producers"),
        "identical": measured.identical,
        "handoff": None if handoff is None else {key: handoff.get(key) for key in keys},
        "itl_ms": trace.get("itl_ms"),
        "kv_bytes_on_line": measured.kv_bytes_on_line,
        "kv_bytes_missing": kv.get("missing_bytes"),
        "total_ms": round(run.token_at_ms[-1], 1),
    }


def unmet_promises(
    relayed: Measured, others: Sequence[Measured], second_token_limit_ms: float = SECOND_TOKEN_LIMIT_MS
) -> list[str]:
    """What was promised and did not come true, one sentence each."""
    unmet = [
        f"{m.name}: the tokens differ from one engine's, first at position {first_difference(m)}"
        for m in (relayed, *others)
        if not m.identical
    ]
    producers = relayed.run.trace.get("producers") or {}
    if relayed.run.pipeline != "P-RLD-MD":
        unmet.append(f"{relayed.name}: took pipeline {relayed.run.pipeline} ({relayed.run.reason}), not P-RLD-MD")
    elif not producers.get("MD"):
        unmet.append(f"{relayed.name}: MD made no token, the handoff did not take place")
    gap = relayed.run.second_token_ms
    if gap is None or gap > second_token_limit_ms:
        shown = "never came" if gap is None else f"came {gap:.0f} ms after the first"
        unmet.append(f"{relayed.name}: the second token {shown} (limit {second_token_limit_ms:.0f} ms)")
    return unmet


def first_difference(measured: Measured) -> int:
    """Position of the first token that differs from one engine's; the shorter length if one ends before."""
    ours, theirs = measured.run.token_ids, measured.single_token_ids
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return position
    return min(len(ours), len(theirs))


def demo_document(
    line: LineFacts,
    relayed: Measured,
    naive: Measured,
    follow_up: Measured | None,
    *,
    unmet: Sequence[str],
    seconds: float,
) -> dict[str, Any]:
    """The JSON document of `pdd demo`. The long request's figures stand at the top, `naive` beside them; `requests`
    lists every request that took its own way through the router."""
    requests = [m for m in (relayed, follow_up) if m is not None]
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "DemoReport",
        "met": not unmet,
        "unmet": list(unmet),
        "line": {"rate_mbps": line.rate_mbps, "rtt_ms": line.rtt_ms, "streams": line.streams, "emulated": True},
        **{key: value for key, value in request_record(relayed).items() if key != "name"},
        "naive": request_record(naive),
        "requests": [request_record(m) for m in requests],
        "seconds": round(seconds, 1),
    }


def demo_table(relayed: Measured, naive: Measured, follow_up: Measured | None) -> str:
    """The closing table for people."""
    columns = [m for m in (relayed, naive, follow_up) if m is not None]
    titles = {relayed.name: "PDD", naive.name: "naive"}
    rows = [["", *(titles.get(m.name, m.name) for m in columns)]]
    rows.append(["pipeline", *(m.run.pipeline for m in columns)])
    rows.append(["first token", *(_ms(m.run.ttft_ms) for m in columns)])
    rows.append(["second token, after the first", *(_ms(m.run.second_token_ms) for m in columns)])
    rows.append(["KV on the line", *(f"{m.kv_bytes_on_line / 1e6:.2f} MB" for m in columns)])
    rows.append(["KV that MD lacked", *(_megabytes(m) for m in columns)])
    rows.append(["tokens by P / RLD / MD", *(_producers(m) for m in columns)])
    rows.append(["equal to one engine's, id by id", *("yes" if m.identical else "NO" for m in columns)])
    return table(rows)


def handoff_line(run: ChatRun) -> str:
    """One sentence on the handoff; empty without one."""
    handoff = run.trace.get("handoff")
    if not handoff:
        return ""
    itl = (run.trace.get("itl_ms") or {}).get("p50")
    normal = f" (normal {itl:.0f} ms)" if isinstance(itl, (int, float)) else ""
    rounds = f"{handoff['rounds']} round{'s' if handoff['rounds'] != 1 else ''}"
    return (
        f"handoff {handoff['mode']}, {rounds}, {handoff['tokens']} tokens: "
        f"pause {handoff['stall_ms']:.0f} ms{normal}, {handoff['payload_bytes']} B sent"
    )


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.0f} ms"


def _megabytes(measured: Measured) -> str:
    missing = (measured.run.trace.get("kv") or {}).get("missing_bytes")
    return "-" if missing is None else f"{missing / 1e6:.2f} MB"


def _producers(measured: Measured) -> str:
    made = measured.run.trace.get("producers") or {}
    return " / ".join(str(made.get(role, 0)) for role in ("P", "RLD", "MD"))
