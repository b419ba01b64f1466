"""The same requests under another rate, hit rate or length: for common random numbers and for sensitivity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdd.planner.load import Load

MAX_FACTOR = 1e6
HALVINGS = 40


def with_rate(load: Load, rate_per_s: float) -> Load:
    """The same requests, arriving at that mean rate: gaps are stretched, their pattern stays. Where all come at once
    there is no pattern: they come evenly. 0: unchanged."""
    own = load.rate_per_s
    if rate_per_s <= 0 or abs(rate_per_s - own) < 1e-12 * own:
        return load
    if own <= 0:
        return replace(load, arrival_s=np.arange(len(load)) / rate_per_s)
    return replace(load, arrival_s=load.arrival_s * (own / rate_per_s))


def with_hit_points(load: Load, points: float) -> Load:
    """The mean hit rate (by request) moved by `points` of 1: uncached tokens of every request in proportion.

    Hashes say what is in caches by themselves, so a load with blocks loses them and keeps its counted hits.
    """
    if points == 0 or not len(load):
        return load
    inputs = load.input_tokens.astype(np.float64)
    uncached = inputs - load.hit_tokens
    target = min(1.0, max(0.0, 1.0 - float(np.mean(load.hit_tokens / inputs)) - points))
    low, high = 0.0, 1.0
    while high < MAX_FACTOR and float(np.mean(np.minimum(uncached * high, inputs) / inputs)) < target:
        high *= 2
    for _ in range(HALVINGS):  # a request has no more uncached tokens than tokens, so the rest must give more
        middle = (low + high) / 2
        if float(np.mean(np.minimum(uncached * middle, inputs) / inputs)) < target:
            low = middle
        else:
            high = middle
    changed = np.minimum(np.rint(uncached * high), load.input_tokens).astype(np.int64)
    return replace(load, hit_tokens=load.input_tokens - changed, blocks=None)


def with_lengths(load: Load, input_factor: float = 1.0, output_factor: float = 1.0) -> Load:
    """Prompts (at the same hit rates) and answers so many times as long, at least one token."""
    if input_factor == 1.0 and output_factor == 1.0:
        return load
    inputs = np.maximum(1, np.rint(load.input_tokens * input_factor)).astype(np.int64)
    outputs = np.maximum(1, np.rint(load.output_tokens * output_factor)).astype(np.int64)
    hits = np.minimum(inputs, np.rint(load.hit_tokens * input_factor)).astype(np.int64)
    blocks = load.blocks if input_factor == 1.0 else None
    return replace(load, input_tokens=inputs, output_tokens=outputs, hit_tokens=hits, blocks=blocks)
