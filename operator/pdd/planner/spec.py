"""What a plan is made from: the model, the load, the promise, the two sites, the line on offer, and the prices.

`spec_file` reads it from a small YAML file, `spec_objects` from a PDDDeployment and its PDDLink. Base units: bits per
second, seconds, tokens, shares of 1, money per hour. Whatever the file left open and we filled in stands in
`PlanSpec.assumptions`, in words, and is shown with the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pdd.planner.fleet import LineSpec, RuleSpec, Sla
from pdd.planner.kvlaw import KVLaw

PORTS_BPS: tuple[float, ...] = (1e9, 10e9, 20e9, 25e9, 40e9, 100e9)
"""Line sizes that carriers sell; what is searched when a file names none."""
DEFAULT_THRESHOLDS_S: tuple[float, ...] = (0.05, 0.2, 1.0)


class HitLaw(StrEnum):
    """How hit rates spread. MIXTURE: seven buckets as production shows them, skewed; NARROW: all near the mean."""

    MIXTURE = "mixture"
    NARROW = "narrow"


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What is asked. rate_per_s: requests a second. trace: requests come from it, at rate_per_s if that is more than 0,
    else at the trace's own rate; the rest is then unused. spread: sigma of the lognormal law of lengths, 0: all equal.
    """

    rate_per_s: float
    input_tokens: float = 64_000.0
    input_spread: float = 0.5
    output_tokens: float = 1_000.0
    output_spread: float = 0.5
    hit_rate: float = 0.9
    hits: HitLaw = HitLaw.MIXTURE
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """What one site can have. accelerators: chips of one engine, 0: the fewest that hold the model. max_engines of one
    role. local_bps: the network inside the site."""

    chips: tuple[str, ...]
    accelerators: int = 0
    max_sequences: int = 256
    chunk_tokens: int = 8192
    max_engines: int = 1024
    local_bps: float = 400e9


@dataclass(frozen=True, slots=True)
class LineOffer:
    """The lines that can be had. The other fields as in `fleet.LineSpec`."""

    sizes_bps: tuple[float, ...]
    rtt_s: float
    efficiency: float = 0.95
    flow_bps: float = 0.0
    streams: int = 4
    connections: int = 0
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per hour. chips: by name, one chip. ports: by size in bits per second, instead of fixed and per_gbit.
    per_gb: a transferred 10^9 bytes."""

    chips: Mapping[str, float]
    currency: str = "USD"
    line_fixed_per_h: float = 0.0
    line_per_gbit_h: float = 0.0
    line_per_gb: float = 0.0
    ports: Mapping[float, float] = field(default_factory=dict)

    def line_per_h(self, capacity_bps: float, bytes_per_s: float = 0.0) -> float:
        """Money an hour for a line of that size which carries bytes_per_s on the mean."""
        port = self.ports.get(capacity_bps)
        flat = port if port is not None else self.line_fixed_per_h + self.line_per_gbit_h * capacity_bps / 1e9
        return flat + self.line_per_gb * bytes_per_s * 3600 / 1e9


@dataclass(frozen=True, slots=True)
class Objects:
    """The resources that a plan was made from, as they were written; the answer goes into copies of them."""

    deployment: Mapping[str, Any]
    link: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One question. source: the file's name. places: field -> `FILE:LINE: field`, to name what is refused later.

    calibrations: chip -> file of `pdd calibrate`, used instead of the catalogue: measured times of one engine.
    relay: engines of relay decode in site A, where they are other ones than those of prefill.
    """

    source: str
    model: str
    load: LoadSpec
    sla: Sla
    site_a: SiteSpec
    site_b: SiteSpec
    line: LineOffer
    prices: Prices
    relay: SiteSpec | None = None
    precision: str = ""
    kv: KVLaw | None = None
    block_tokens: int = 64
    rules: RuleSpec = field(default_factory=RuleSpec)
    thresholds_s: tuple[float, ...] = DEFAULT_THRESHOLDS_S
    assumptions: tuple[str, ...] = ()
    calibrations: Mapping[str, Path] = field(default_factory=dict)
    objects: Objects | None = None
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, name: str) -> str:
        """Where the field stands in the file, for an error."""
        return self.places.get(name, f"{self.source}: {name}")

    def line_spec(self, capacity_bps: float, bytes_per_s: float = 0.0) -> LineSpec:
        """The line of that size with its price."""
        offer = self.line
        return LineSpec(
            capacity_bps=capacity_bps,
            rtt_s=offer.rtt_s,
            efficiency=offer.efficiency,
            flow_bps=offer.flow_bps,
            streams=offer.streams,
            connections=offer.connections,
            loss=offer.loss,
            local_bps=self.site_a.local_bps,
            price_per_h=self.prices.line_per_h(capacity_bps, bytes_per_s),
        )
