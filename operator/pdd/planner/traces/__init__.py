"""Recorded loads: readers for three formats, hit rates under caches of any size, statistics."""

from pdd.planner.traces.cache import find_cache, finite_hits, measure_reuse
from pdd.planner.traces.reader import TraceFormat, detect_format, read_trace
from pdd.planner.traces.stats import TraceStats, to_document, trace_stats

__all__ = [
    "TraceFormat",
    "TraceStats",
    "detect_format",
    "find_cache",
    "finite_hits",
    "measure_reuse",
    "read_trace",
    "to_document",
    "trace_stats",
]
