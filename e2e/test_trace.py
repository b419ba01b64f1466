"""The head of a production trace through both clusters: all answered, all the right ids, nothing sent twice.

PDD_E2E_TRACE_REQUESTS (200), PDD_E2E_TRACE_SPEED (0.8: slower than the trace) and PDD_E2E_SALT (a run's own
prompts; give a former run's to repeat it) change the run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

import pytest

from e2e.client import Answer
from e2e.mooncake import Arrival, Scale, compute_missing_bytes, load_records, scale_records
from e2e.oracle import Oracle
from e2e.replay import Replay, replay, summarise
from e2e.streams import Request, build_body, check_answer
from e2e.system import MODEL, System

REQUESTS = int(os.environ.get("PDD_E2E_TRACE_REQUESTS", "200"))
SCALE = Scale(block_tokens=16, output_divisor=8, speed=float(os.environ.get("PDD_E2E_TRACE_SPEED", "0.8")))
BLOCK_TOKENS = 16
BYTES_PER_TOKEN = 4096
MOST_OF_MISSING = 1.05


def build_request(index: int, arrival: Arrival) -> Request:
    """Every third request samples; the rest is greedy."""
    request: Request = {"prompt": list(arrival.prompt), "max_tokens": arrival.max_tokens, "ignore_eos": True}
    if index % 3:
        return {**request, "temperature": 0}
    return {**request, "temperature": 0.9, "top_p": 0.9, "seed": index}


@pytest.mark.timeout(900, func_only=True)
def test_two_hundred_requests_of_the_trace(system: System, oracle: Oracle) -> None:
    salt = os.environ.get("PDD_E2E_SALT") or secrets.token_hex(4)
    records, source = load_records(REQUESTS)
    arrivals = scale_records(records, SCALE, salt)
    system.note(f"{source}; PDD_E2E_SALT={salt}")
    requests = [build_request(index, arrival) for index, arrival in enumerate(arrivals)]
    expected = oracle.many(requests)
    missing = compute_missing_bytes([arrival.prompt for arrival in arrivals], BLOCK_TOKENS, BYTES_PER_TOKEN)

    wan, port = system.clusters.wan, system.line_port()
    wan.count(port)
    packets, bulk = wan.port_bytes(port)[0], system.bulk_bytes()
    timed = [(arrival.at_s, build_body(request, MODEL)) for arrival, request in zip(arrivals, requests, strict=True)]
    run = replay(system.client, timed)
    packets, bulk = wan.port_bytes(port)[0] - packets, system.bulk_bytes() - bulk

    summary = f"{summarise(run, bulk, missing)}; with TCP, IP and TLS headers and token ids {packets / missing:.3f}"
    system.note(summary)
    check_all_answered(run)
    for index, (answer, ids) in enumerate(zip(run.answered, expected, strict=True)):
        check_answer(answer, ids, f"request {index}")
    pipelines = {answer.pipeline for answer in run.answered}
    assert pipelines >= {"P-MD", "P-RLD-MD"}, pipelines
    assert bulk <= MOST_OF_MISSING * missing, summary
    system.note(check_line(arrivals, run.answered, bulk, packets))


def check_line(arrivals: list[Arrival], answers: list[Answer], bulk: int, packets: int) -> str:
    """Stricter than the sum over all: what crossed belongs to the prompts that were to cross, and to nothing else."""

    def missing_of(chosen: Callable[[Answer], bool]) -> int:
        prompts = [one.prompt for one, answer in zip(arrivals, answers, strict=True) if chosen(answer)]
        return compute_missing_bytes(prompts, BLOCK_TOKENS, BYTES_PER_TOKEN)

    meant = missing_of(lambda answer: answer.pipeline in ("P-MD", "P-RLD-MD"))
    landed = missing_of(lambda answer: answer.trace["timings_ms"]["landed"] is not None)
    planned = missing_of(lambda answer: answer.trace["kv"]["missing_bytes"] is not None)
    told = sum(answer.trace["kv"]["missing_bytes"] or 0 for answer in answers)
    text = (
        f"crossed {bulk / 1e6:.1f} MB (in packets {packets / 1e6:.1f}); missing: of prompts meant to cross "
        f"{meant / 1e6:.1f}, of those that landed {landed / 1e6:.1f} MB; the router counted {told / 1e6:.1f} of "
        f"{planned / 1e6:.1f} MB"
    )
    assert landed * 0.95 <= bulk <= MOST_OF_MISSING * meant, text
    assert bulk <= packets <= 1.10 * bulk, text  # TCP, IP and TLS headers and token ids: no more than that
    assert abs(told - planned) <= 0.05 * planned, text
    assert landed >= 0.3 * meant, f"RLD finished nearly everything before its KV had landed: {text}"
    return text


def check_all_answered(run: Replay) -> None:
    wrong = [
        f"request {index}: {one.status} {one.text[:200]}" if isinstance(one, Answer) else f"request {index}: {one!r}"
        for index, one in enumerate(run.answers)
        if not isinstance(one, Answer) or one.status != 200
    ]
    assert not wrong, f"{len(wrong)} of {len(run.answers)} not answered: {wrong[:5]}"
