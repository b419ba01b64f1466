"""Recorded loads: readers for three formats, hit rates under caches of any size, statistics."""

from pdd.planner.traces.reader import TraceFormat, detect_format, read_trace

__all__ = ["TraceFormat", "detect_format", "read_trace"]
