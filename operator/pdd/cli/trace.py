"""`pdd trace stats` and `pdd trace fit`: reads, measures, prints."""

from __future__ import annotations

from json import dumps
from pathlib import Path

import yaml

from pdd.cli.console import Console, table
from pdd.common.errors import InvalidInput
from pdd.planner.fit import fit_workload
from pdd.planner.traces import TraceStats, detect_format, read_trace, to_document, trace_stats
from pdd.planner.traces.stats import DEFAULT_CACHES, HitStats, Spread
from pdd.planner.units import UnitError, read_tokens
from pdd.planner.workload_document import workload_to_document

BUCKETS = ("0-90", "90-95", "95-97", "97-98", "98-99", "99-100")


def run_stats(file: Path, cache: list[str] | None, limit: int | None, *, as_json: bool) -> None:
    """Prints one JSON document, or tables for a person."""
    sizes = [_read_size(text) for text in cache] if cache else list(DEFAULT_CACHES)
    trace_format = detect_format(file)
    stats = trace_stats(read_trace(file, limit), sizes)
    console = Console()
    if as_json:
        console.result(dumps(to_document(stats, file.name, trace_format), indent=2))
    else:
        console.result(format_stats(stats, file.name, trace_format))


def run_fit(file: Path, limit: int | None, *, as_json: bool) -> None:
    """Prints the workload as YAML, or as JSON."""
    document = workload_to_document(fit_workload(read_trace(file, limit)))
    text = dumps(document, indent=2) if as_json else yaml.safe_dump(document, sort_keys=False).rstrip()
    Console().result(text)


def format_stats(stats: TraceStats, name: str, trace_format: str) -> str:
    """Tables of at most 100 columns."""
    head = f"{name} ({trace_format}): {stats.requests:,} requests in {stats.duration_s:,.0f} s"
    if stats.rate_per_s:
        head += f", {stats.rate_per_s:.3g}/s"
    if stats.gap_cv is not None:
        head += f", gaps vary by {stats.gap_cv:.2f} (Poisson: 1)"
    spreads = [("prompt tokens", stats.input_tokens), ("answer tokens", stats.output_tokens)]
    if stats.uncached_tokens:
        spreads.append(("uncached tokens", stats.uncached_tokens))
    if stats.sessions:
        spreads.append(("turns", stats.sessions.turns))
        if stats.sessions.think_s:
            spreads.append(("think time (s)", stats.sessions.think_s))
    parts = [head, table([["", "mean", "P10", "P50", "P90", "P95", "P99", "max"], *(_spread_row(*s) for s in spreads)])]
    if stats.hits is None:
        parts.append("nothing is known about hits: the trace has no hashes and no sessions")
        return "\n".join(parts)
    rows = [_hit_row("unlimited", stats.hits)]
    rows += [_hit_row(_short(cache.cache_tokens or 0), cache) for cache in stats.caches or ()]
    parts.append(table([["cache (tokens)", "hit/request", "hit/token", *(f"{b} %" for b in BUCKETS)], *rows]))
    if stats.working_set:
        known = [(share.removeprefix("share"), size) for share, size in stats.working_set.items() if size is not None]
        if known:
            parts.append("cache for so much of all hit tokens: " + ", ".join(f"{s} % {_short(c)}" for s, c in known))
    if stats.cold_uncached_share is not None and stats.odd_share is not None:
        parts.append(
            f"requests below 90 % carry {stats.cold_uncached_share:.1%} of all uncached tokens; "
            f"{stats.odd_share:.2%} are odd (uncached >= 16 Ki, answer <= 128)"
        )
    return "\n".join(parts)


def _read_size(text: str) -> float:
    try:
        return read_tokens(text)
    except UnitError as error:
        raise InvalidInput("--cache", text, str(error)) from error


def _spread_row(name: str, spread: Spread) -> list[str]:
    values = (spread.mean, spread.p10, spread.p50, spread.p90, spread.p95, spread.p99, spread.max)
    return [name, *("-" if value is None else f"{value:,.0f}" for value in values)]


def _hit_row(name: str, hits: HitStats) -> list[str]:
    return [name, *(f"{100 * value:.1f} %" for value in (hits.by_request, hits.by_token, *hits.buckets))]


def _short(tokens: int) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "K")):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return str(tokens)
