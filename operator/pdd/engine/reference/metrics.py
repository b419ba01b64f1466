"""/metrics in the Prometheus text format, under vLLM's names where the thing is the same, `pdd_engine_` otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdd.engine.reference.counters import Counters, Histogram
from pdd.engine.reference.leases import LeaseCounts


@dataclass(frozen=True, slots=True)
class Gauges:
    """The moment's numbers."""

    running: int
    waiting: int
    deferred: int
    loading: int
    holding: int
    used_share: float
    free_blocks: int
    total_blocks: int
    block_size: int
    served_bytes: int
    leases: LeaseCounts


class _Page:
    def __init__(self, model_name: str) -> None:
        self._base = f'engine="0",model_name="{_escape(model_name)}"'
        self.lines: list[str] = []

    def family(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def sample(self, name: str, value: float, labels: str = "") -> None:
        joined = f"{self._base},{labels}" if labels else self._base
        self.lines.append(f"{name}{{{joined}}} {value:.17g}")

    def single(self, name: str, kind: str, text: str, value: float) -> None:
        self.family(name, kind, text)
        self.sample(name, value)

    def labelled(self, name: str, kind: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> None:
        self.family(name, kind, text)
        for key, value in values:
            self.sample(name, value, f'{label}="{_escape(key)}"')

    def histogram(self, name: str, text: str, histogram: Histogram) -> None:
        self.family(name, "histogram", text)
        seen = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            seen += count
            self.sample(f"{name}_bucket", seen, f'le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"')
        self.sample(f"{name}_sum", histogram.total)
        self.sample(f"{name}_count", seen)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render_metrics(model_name: str, counters: Counters, gauges: Gauges) -> str:
    """The whole page."""
    page = _Page(model_name)
    _requests(page, counters, gauges)
    _tokens(page, counters)
    _kv(page, counters, gauges)
    page.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", counters.first_token_s)
    page.histogram("vllm:inter_token_latency_seconds", "Between two tokens.", counters.inter_token_s)
    page.histogram("vllm:request_queue_time_seconds", "From arrival to admission.", counters.queue_s)
    page.histogram("vllm:request_prefill_time_seconds", "From admission to the first token.", counters.prefill_s)
    page.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", counters.decode_s)
    return "\n".join(page.lines) + "\n"


def _requests(page: _Page, counters: Counters, gauges: Gauges) -> None:
    page.single("vllm:num_requests_running", "gauge", "Requests in the running batch.", gauges.running)
    page.single("vllm:num_requests_waiting", "gauge", "Requests not yet running.", gauges.waiting + gauges.loading)
    reasons = [("capacity", gauges.waiting - gauges.deferred), ("deferred", gauges.deferred + gauges.loading)]
    page.labelled("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", "reason", reasons)
    stages = [("waiting_to_start", gauges.holding), ("in_progress", gauges.loading), ("completed_waiting", 0)]
    page.labelled("vllm:num_requests_kv_fetch_by_stage", "gauge", "Requests that read remote KV.", "stage", stages)
    page.single("vllm:num_preemptions_total", "counter", "Requests put back for lack of blocks.", counters.preemptions)
    page.single("vllm:admission_rejections_total", "counter", "Requests refused: queue full.", counters.rejections)
    done = sorted(counters.finished_by_reason.items())
    page.labelled("vllm:request_success_total", "counter", "Ended requests.", "finished_reason", done)


def _tokens(page: _Page, counters: Counters) -> None:
    page.single("vllm:prompt_tokens_total", "counter", "Prompt tokens of admitted requests.", counters.prompt_tokens)
    page.single("vllm:generation_tokens_total", "counter", "Tokens generated.", counters.generated)
    sources = [
        ("local_compute", counters.computed_tokens),
        ("local_cache_hit", counters.local_cached_tokens),
        ("external_kv_transfer", counters.remote_tokens),
    ]
    page.labelled("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by KV source.", "source", sources)
    cached = counters.local_cached_tokens + counters.remote_tokens
    page.single("vllm:prompt_tokens_cached_total", "counter", "Prompt tokens not computed here.", cached)
    by_source = [("device", counters.local_cached_tokens), ("p2p", counters.remote_tokens)]
    page.labelled(
        "vllm:prompt_tokens_cached_by_source_total", "counter", "The same by where the KV was.", "source", by_source
    )
    queries = counters.prompt_tokens
    page.single("vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.", queries)
    page.single("vllm:prefix_cache_hits_total", "counter", "Tokens found there.", counters.local_cached_tokens)
    outside = counters.external_queries_tokens
    page.single("vllm:external_prefix_cache_queries_total", "counter", "Tokens not found locally.", outside)
    page.single("vllm:external_prefix_cache_hits_total", "counter", "Of these, read remotely.", counters.remote_tokens)


def _kv(page: _Page, counters: Counters, gauges: Gauges) -> None:
    page.single("vllm:kv_cache_usage_perc", "gauge", "Share of blocks in use, 0 to 1.", gauges.used_share)
    page.family("vllm:cache_config_info", "gauge", "KV cache sizes.")
    sizes = f'block_size="{gauges.block_size}",num_gpu_blocks="{gauges.total_blocks}"'
    page.sample("vllm:cache_config_info", 1, sizes)
    page.histogram("vllm:nixl_xfer_time_seconds", "Duration of a KV read.", counters.transfer_s)
    page.histogram("vllm:nixl_bytes_transferred", "Bytes of a KV read.", counters.transfer_bytes)
    failed = counters.failed_transfers
    page.single("vllm:nixl_num_failed_transfers_total", "counter", "KV reads that failed.", failed)
    leases = gauges.leases
    page.single("vllm:nixl_num_kv_expired_reqs_total", "counter", "Handles that nobody read in time.", leases.expired)
    page.single("pdd_engine_kv_leases", "gauge", "Handles held for a reader.", leases.held)
    page.single("pdd_engine_kv_leases_granted_total", "counter", "Handles given out.", leases.granted)
    page.single("pdd_engine_kv_leases_read_total", "counter", "Handles that were read.", leases.read)
    page.single("pdd_engine_kv_leases_expired_total", "counter", "Handles that expired.", leases.expired)
    page.single("pdd_engine_kv_reads_refused_total", "counter", "Asks for a handle that were refused.", leases.refused)
    page.single("pdd_engine_kv_served_bytes_total", "counter", "KV bytes sent to readers.", gauges.served_bytes)
    page.single("pdd_engine_kv_read_bytes_total", "counter", "KV bytes read.", counters.transferred_bytes)
    page.single("pdd_engine_kv_blocks_free", "gauge", "Blocks that can be handed out now.", gauges.free_blocks)
    page.single("pdd_engine_kv_blocks", "gauge", "Blocks in all.", gauges.total_blocks)
