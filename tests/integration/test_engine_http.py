"""The engine's HTTP as clients see it: streams, errors, hang-ups, overload, draining."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.engine_process import EngineProcess, completion_body, free_port, read_events, wait_for

PROMPT = list(b"One engine answers; nobody else is asked.")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    engine = EngineProcess("main-decode", tmp_path_factory.mktemp("engine"), "--served-model-name", "tiny,small")
    yield engine
    assert engine.stop() == 0


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engine: EngineProcess) -> Iterator[None]:
    yield
    engine.wait_until_free()


def stream(engine: EngineProcess, **fields: Any) -> list[dict[str, Any]]:
    body = completion_body(PROMPT, stream=True, ignore_eos=True, **fields)
    with engine.http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(read_events(answer.iter_lines()))


@contextlib.contextmanager
def open_stream(engine: EngineProcess, body: dict[str, Any]) -> Iterator[httpx.Response]:
    """A stream on a connection of its own, which is closed at the end."""
    client = httpx.Client(base_url=engine.url, timeout=30)
    with client, client.stream("POST", "/v1/completions", json=body) as answer:
        yield answer


def test_a_stream_has_the_tokens_of_the_whole_answer(engine: EngineProcess) -> None:
    whole = engine.complete(PROMPT, max_tokens=20, ignore_eos=True)["choices"][0]
    chunks = stream(engine, max_tokens=20)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [t for c in choices for t in c["token_ids"]] == whole["token_ids"]
    assert "".join(c["text"] for c in choices) == whole["text"]
    assert [c["finish_reason"] for c in choices] == [None] * 19 + ["length"]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


def test_usage_comes_last_when_asked_for(engine: EngineProcess) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = stream(engine, max_tokens=5, stream_options=options)
    assert [c["usage"]["completion_tokens"] for c in chunks] == [1, 2, 3, 4, 5]
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == len(PROMPT)
    assert last["usage"]["total_tokens"] == len(PROMPT) + 5
    assert "cached_tokens" in last["usage"]["prompt_tokens_details"]
    assert all("usage" not in chunk for chunk in stream(engine, max_tokens=2))


def test_ids_come_only_when_asked_for(engine: EngineProcess) -> None:
    choice = engine.complete(PROMPT, max_tokens=2, return_token_ids=False)["choices"][0]
    assert "token_ids" not in choice and "prompt_token_ids" not in choice
    assert "prompt_token_ids" not in engine.complete(PROMPT, max_tokens=2)["choices"][0]
    text = bytes(PROMPT).decode()
    assert engine.complete(text, max_tokens=2)["choices"][0]["prompt_token_ids"] == PROMPT


def test_x_request_id_is_part_of_the_answers_id(engine: EngineProcess) -> None:
    answer = engine.http.post(
        "/v1/completions", json=completion_body(PROMPT, max_tokens=1), headers={"x-request-id": "my-1/\n2"[:5]}
    )
    assert answer.json()["id"].startswith("cmpl-my-1-")


def test_unseeded_sampling_varies(engine: EngineProcess) -> None:
    runs = {tuple(engine.ids(PROMPT, 12, temperature=1.5)) for _ in range(4)}
    assert len(runs) > 1


def test_hanging_up_ends_the_request(engine: EngineProcess) -> None:
    body = completion_body(PROMPT, stream=True, max_tokens=10_000, ignore_eos=True)
    with (
        httpx.Client(base_url=engine.url, timeout=30) as client,
        client.stream("POST", "/v1/completions", json=body) as s,
    ):
        events = read_events(s.iter_lines())  # kept: a generator that is dropped closes its connection
        next(events)
        assert engine.state()["running"] == 1
    wait_for(lambda: engine.state()["running"] == 0, 3)
    assert engine.metric("vllm:request_success_total", "abort") >= 1


def test_hanging_up_before_the_answer_ends_the_request(engine: EngineProcess) -> None:
    body = completion_body(PROMPT, max_tokens=10_000, ignore_eos=True)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{engine.url}/v1/completions", json=body, timeout=0.3)
    wait_for(lambda: engine.state()["running"] == 0, 3)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"n": 2}, 400, "n"),
        ({"logprobs": 5}, 400, "logprobs"),
        ({"presence_penalty": 1}, 400, "presence_penalty"),
        ({"prompt": [9999]}, 400, "prompt"),
        ({"prompt": [1] * 16384}, 400, "prompt"),
        ({"temperature": 9}, 400, "temperature"),
        ({"model": "gpt"}, 404, "model"),
        ({"kv_transfer_params": {"do_remote_prefill": True}}, 400, "kv_transfer_params.remote_engine_id"),
    ],
)
def test_errors_have_openais_shape(engine: EngineProcess, fields: dict[str, Any], status: int, param: str) -> None:
    answer = engine.post("/v1/completions", {**completion_body(PROMPT, max_tokens=2), **fields})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_malformed_bodies_are_400(engine: EngineProcess, content: bytes) -> None:
    answer = engine.http.post("/v1/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "BadRequestError"


def test_too_large_bodies_are_413(engine: EngineProcess) -> None:
    assert engine.http.post("/v1/completions", content=b" " * (17 << 20)).status_code == 413


def test_unknown_routes_and_methods(engine: EngineProcess) -> None:
    assert engine.http.get("/nothing").status_code == 404
    assert engine.http.get("/v1/completions").status_code == 405


def test_models_say_what_planners_need(engine: EngineProcess) -> None:
    entries = engine.http.get("/v1/models").json()["data"]
    assert [e["id"] for e in entries] == ["tiny", "small"]
    assert entries[0]["pdd"]["bytes_per_token"] == 4096
    assert entries[0]["max_model_len"] == 16384
    assert engine.complete(PROMPT, model="small", max_tokens=1)["model"] == "small"


def test_tokenize_and_detokenize(engine: EngineProcess) -> None:
    reply = engine.post("/tokenize", {"model": "tiny", "prompt": "añ"}).json()
    assert (reply["tokens"], reply["count"]) == ([97, 195, 177], 3)
    assert engine.post("/detokenize", {"tokens": [97, 195, 177]}).json() == {"prompt": "añ"}
    chat = engine.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert chat["count"] == len(chat["tokens"]) == 6
    assert engine.post("/tokenize", {"messages": [{"role": "x"}]}).json()["error"]["param"] == "messages[0].role"
    assert engine.post("/tokenize", {"prompt": 5}).status_code == 400
    assert engine.post("/detokenize", {"tokens": ["a"]}).status_code == 400


def test_metrics_are_prometheus_text_under_vllms_names(engine: EngineProcess) -> None:
    engine.complete(PROMPT, max_tokens=3)
    families = {f.name: f for f in text_string_to_metric_families(engine.http.get("/metrics").text)}
    expected = {
        "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason",
        "vllm:num_requests_kv_fetch_by_stage", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries",
        "vllm:prefix_cache_hits", "vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits",
        "vllm:prompt_tokens_by_source", "vllm:prompt_tokens_cached", "vllm:prompt_tokens_cached_by_source",
        "vllm:nixl_xfer_time_seconds", "vllm:nixl_bytes_transferred", "vllm:nixl_num_failed_transfers",
        "vllm:nixl_num_kv_expired_reqs", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
        "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:num_preemptions", "vllm:admission_rejections", "vllm:cache_config_info", "pdd_engine_kv_leases",
    }  # fmt: skip
    assert expected <= set(families)
    ttft = {s.name: s.value for s in families["vllm:time_to_first_token_seconds"].samples if "bucket" not in s.name}
    assert ttft["vllm:time_to_first_token_seconds_count"] >= 1
    assert 0 < ttft["vllm:time_to_first_token_seconds_sum"] < 100
    labels = families["vllm:num_requests_running"].samples[0].labels
    assert labels == {"engine": "0", "model_name": "tiny"}


def test_an_idle_engine_uses_no_cpu(engine: EngineProcess) -> None:
    process = psutil.Process(engine.process.pid)
    before = process.cpu_times()
    time.sleep(1.0)
    after = process.cpu_times()
    assert after.user + after.system - before.user - before.system < 0.1


def test_memory_stays_small(engine: EngineProcess) -> None:
    """At the default number of blocks: what is resident, and what the untouched blocks will add."""
    engine.complete([32 + i * 7 % 90 for i in range(4000)], max_tokens=1)
    state = engine.state()
    untouched = (state["total_blocks"] - state["cached_blocks"]) * 16 * 4096
    assert state["cached_blocks"] >= 250
    assert psutil.Process(engine.process.pid).memory_info().rss + untouched < 400e6


def test_overload_is_429_with_retry_after(tmp_path: Path) -> None:
    engine = EngineProcess("main-decode", tmp_path, "--max-num-seqs", "1", "--max-queued", "2", "--step-ms", "20")
    try:
        with ThreadPoolExecutor(8) as pool:
            body = completion_body(PROMPT, max_tokens=20, ignore_eos=True)
            answers = list(
                pool.map(lambda _: httpx.post(f"{engine.url}/v1/completions", json=body, timeout=60), range(8))
            )
        statuses = [a.status_code for a in answers]
        assert set(statuses) == {200, 429} and statuses.count(200) >= 3
        refused = next(a for a in answers if a.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "RateLimitError"
        assert engine.metric("vllm:admission_rejections_total") == statuses.count(429)
    finally:
        assert engine.stop() == 0


def test_step_ms_paces_tokens_without_burning_cpu(tmp_path: Path) -> None:
    engine = EngineProcess("main-decode", tmp_path, "--step-ms", "50")
    try:
        engine.complete(PROMPT, max_tokens=1)
        process = psutil.Process(engine.process.pid)
        busy_s, began_s = sum(process.cpu_times()[:2]), time.monotonic()
        engine.ids(PROMPT, 20)
        took_s = time.monotonic() - began_s
        assert 20 * 0.05 <= took_s < 3
        assert sum(process.cpu_times()[:2]) - busy_s < 0.6 * took_s
    finally:
        assert engine.stop() == 0


def test_sigterm_lets_streams_finish_and_refuses_new_work(tmp_path: Path) -> None:
    engine = EngineProcess("main-decode", tmp_path, "--step-ms", "30", "--grace-s", "20")
    body = completion_body(PROMPT, stream=True, max_tokens=40, ignore_eos=True)
    with (
        httpx.Client(base_url=engine.url, timeout=30) as client,
        client.stream("POST", "/v1/completions", json=body) as s,
    ):
        events = read_events(s.iter_lines())
        next(events)
        engine.process.send_signal(signal.SIGTERM)
        wait_for(lambda: engine.state()["draining"], 3)
        refused = engine.post("/v1/completions", completion_body(PROMPT, max_tokens=1))
        assert refused.status_code == 503 and "retry-after" in refused.headers
        assert engine.http.get("/health").status_code == 503
        assert len(list(events)) == 39
    assert engine.process.wait(5) == 0
    engine.http.close()


def test_sigterm_waits_for_leases_no_longer_than_the_grace(tmp_path: Path) -> None:
    engine = EngineProcess("prefill", tmp_path, "--grace-s", "1")
    engine.prefill(PROMPT)
    began_s = time.monotonic()
    engine.process.send_signal(signal.SIGTERM)
    wait_for(lambda: engine.state()["draining"], 3)
    assert engine.state()["leases"] == 1
    assert engine.process.wait(5) == 0
    assert time.monotonic() - began_s >= 1
    engine.http.close()


def test_the_grace_ends_long_requests_with_an_error(tmp_path: Path) -> None:
    engine = EngineProcess("main-decode", tmp_path, "--step-ms", "20", "--grace-s", "0.5")
    body = completion_body(PROMPT, stream=True, max_tokens=10_000, ignore_eos=True)
    with (
        httpx.Client(base_url=engine.url, timeout=30) as client,
        client.stream("POST", "/v1/completions", json=body) as s,
    ):
        events = read_events(s.iter_lines())
        next(events)
        engine.process.send_signal(signal.SIGTERM)
        *_, last = events
        assert "shutting down" in last["error"]["message"]
    assert engine.process.wait(5) == 0
    engine.http.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--role", "boss"], "--role"), (["--port", "x"], "--port"), (["--bogus", "1"], "--bogus")],
)
def test_a_bad_flag_exits_2_with_one_line(flags: list[str], words: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pdd.engine.reference", *flags], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) == 1
    assert words in run.stderr


def test_a_taken_port_is_named(engine: EngineProcess) -> None:
    taken = str(engine.port)
    command = [sys.executable, "-m", "pdd.engine.reference", "--kv-port"]
    for flags in ([str(engine.state()["kv_port"]), "--port", str(free_port())], ["0", "--port", taken]):
        run = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=30, check=False)
        assert run.returncode != 0
        assert "cannot listen" in run.stderr or "choose a free port" in run.stderr


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-40, 2.0])
def test_no_temperature_harms_the_engine(engine: EngineProcess, temperature: float) -> None:
    for _ in range(2):
        body = engine.complete(PROMPT, max_tokens=3, temperature=temperature, seed=1, ignore_eos=True)
        assert len(body["choices"][0]["token_ids"]) == 3
    assert engine.http.get("/health").status_code == 200


def test_no_hang_up_leaves_a_lease_behind(tmp_path: Path) -> None:
    """Whenever the asker of a handle leaves: before, while and just after it is granted (a step takes 20 ms here). One
    may leave while the answer is in the kernel's hands: then there is nobody who could know."""
    engine = EngineProcess("prefill", tmp_path, "--step-ms", "20", "--kv-lease-s", "600")
    ask = {"do_remote_decode": True, "do_remote_prefill": False}
    try:
        for k in range(40):
            body = completion_body([32 + k, *range(40, 90)], max_tokens=1, ignore_eos=True, kv_transfer_params=ask)
            raw = json.dumps(body).encode()
            with socket.create_connection(("127.0.0.1", engine.port)) as client:
                head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw)
                client.sendall(head + raw)
                readable, _, _ = select.select([client], [], [], k * 0.001)
            if readable:
                break  # from here on the handle has reached its asker
        assert k > 10
        wait_for(lambda: engine.state()["leases"] <= 2 + len(readable), 3, lambda: json.dumps(engine.state()))
    finally:
        engine.process.kill()
        engine.process.wait(5)
        engine.http.close()


def test_health_names_the_process(engine: EngineProcess, tmp_path: Path) -> None:
    """So that a router notices a restart which no health check saw."""
    names = {engine.http.get("/health").headers["x-pdd-engine-id"] for _ in range(2)}
    other = EngineProcess("main-decode", tmp_path)
    try:
        names.add(other.http.get("/health").headers["x-pdd-engine-id"])
    finally:
        assert other.stop() == 0
    assert len(names) == 2
