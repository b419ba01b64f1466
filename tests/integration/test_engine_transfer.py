"""Prefill here, decode there: real processes, real sockets, the same ids."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.integration.engine_process import EngineProcess, completion_body, free_port, wait_for
from tests.integration.engine_relay import Relay

from pdd.engine.reference import model_info, wire
from pdd.engine.reference.wire import Ask, Kind

LEASE_S = 3.0


def prompt_of(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(32, 127) for _ in range(length)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def prefill(folder: Path) -> Iterator[EngineProcess]:
    engine = EngineProcess("prefill", folder, "--kv-lease-s", str(LEASE_S), "--chunk-tokens", "200")
    yield engine
    assert engine.stop() == 0


@pytest.fixture(scope="module")
def decode(folder: Path) -> Iterator[EngineProcess]:
    engine = EngineProcess("main-decode", folder, "--kv-lease-s", str(LEASE_S))
    yield engine
    assert engine.stop() == 0


@pytest.fixture(autouse=True)
def nothing_is_left_behind(prefill: EngineProcess, decode: EngineProcess) -> Iterator[None]:
    yield
    decode.wait_until_free()
    prefill.wait_until_free(LEASE_S + 10)


@pytest.mark.parametrize(("length", "eager"), [(100, 0), (128, 5), (33, 40), (1500, 16)])
def test_pulled_kv_goes_on_with_the_same_ids(
    prefill: EngineProcess, decode: EngineProcess, length: int, eager: int
) -> None:
    prompt = prompt_of(length, length)
    whole = prefill.ids(prompt, eager + 30)
    handle = prefill.prefill(prompt)
    assert handle["remote_num_tokens"] == length
    before = decode.metric("vllm:prompt_tokens_by_source_total", "external_kv_transfer")
    body = decode.complete(prompt + whole[:eager], max_tokens=30, ignore_eos=True, kv_transfer_params=handle)
    assert body["choices"][0]["token_ids"] == whole[eager:]
    details = body["usage"]["prompt_tokens_details"]
    token_bytes = model_info()["bytes_per_token"]
    assert details["pdd"] == {
        "local_cached_tokens": 0,
        "remote_tokens": length,
        "remote_bytes": length * token_bytes,
        "computed_tokens": eager,
    }
    assert details["cached_tokens"] == length
    assert decode.metric("vllm:prompt_tokens_by_source_total", "external_kv_transfer") - before == length


def test_land_then_continue_computes_only_the_new_tokens(prefill: EngineProcess, decode: EngineProcess) -> None:
    prompt = prompt_of(1, 777)
    whole = prefill.ids(prompt, 60)
    decode.complete(prompt, max_tokens=1, ignore_eos=True, kv_transfer_params=prefill.prefill(prompt))
    for eager in (7, 12, 30):
        body = decode.complete(prompt + whole[:eager], max_tokens=30, ignore_eos=True)
        assert body["choices"][0]["token_ids"] == whole[eager : eager + 30]
        assert body["usage"]["prompt_tokens_details"]["pdd"]["computed_tokens"] <= eager


def test_two_readers_have_a_handle_each(prefill: EngineProcess, decode: EngineProcess, folder: Path) -> None:
    prompt = prompt_of(2, 400)
    relay = EngineProcess("relay-decode", folder)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: prefill.prefill(prompt), range(2))
        assert first["remote_request_id"] != second["remote_request_id"]
        assert prefill.state()["leases"] == 2
        with ThreadPoolExecutor(2) as pool:
            by_relay = pool.submit(relay.ids, prompt, 40, kv_transfer_params=first)
            by_decode = pool.submit(decode.ids, prompt, 40, kv_transfer_params=second)
            assert by_relay.result() == by_decode.result() == prefill.ids(prompt, 40)
    finally:
        assert relay.stop() == 0


def test_many_requests_at_once_stay_exact(prefill: EngineProcess, decode: EngineProcess) -> None:
    base = prompt_of(3, 300)
    prompts = [base[: 50 * (i % 6)] + prompt_of(100 + i, 20 + 13 * i) for i in range(12)]
    expected = [prefill.ids(prompt, 25) for prompt in prompts]

    def through_both(index: int) -> list[int]:
        prompt, cut = prompts[index], index % 5
        handle = prefill.prefill(prompt)
        fields = {"kv_transfer_params": handle}
        return expected[index][:cut] + decode.ids(prompt + expected[index][:cut], 25 - cut, **fields)

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(through_both, range(12))) == expected


def test_sampled_requests_are_the_same_on_both_engines(prefill: EngineProcess, decode: EngineProcess) -> None:
    prompt = prompt_of(4, 90)
    sampling = {"temperature": 0.8, "top_p": 0.9, "seed": 12345}
    whole = prefill.ids(prompt, 40, **sampling)
    assert whole != prefill.ids(prompt, 40, **{**sampling, "seed": 6})
    handle = prefill.prefill(prompt)
    assert decode.ids(prompt + whole[:9], 31, kv_transfer_params=handle, **sampling) == whole[9:]


def test_a_handle_is_good_for_one_read(prefill: EngineProcess, decode: EngineProcess) -> None:
    prompt = prompt_of(5, 120)
    handle = prefill.prefill(prompt)
    decode.ids(prompt, 2, kv_transfer_params=handle)
    wait_for(lambda: prefill.state()["leases"] == 0, 5)
    answer = decode.post("/v1/completions", completion_body(prompt_of(6, 120), max_tokens=2, kv_transfer_params=handle))
    assert answer.status_code == 500
    assert "already read" in answer.json()["error"]["message"]


def test_an_unread_handle_expires_and_then_fails(prefill: EngineProcess, decode: EngineProcess) -> None:
    prompt = prompt_of(7, 120)
    handle = prefill.prefill(prompt)
    assert prefill.state()["free_blocks"] < prefill.state()["total_blocks"]
    expired = prefill.metric("pdd_engine_kv_leases_expired_total")
    prefill.wait_until_free(LEASE_S + 5)
    assert prefill.metric("pdd_engine_kv_leases_expired_total") == expired + 1
    answer = decode.post("/v1/completions", completion_body(prompt, max_tokens=2, kv_transfer_params=handle))
    assert answer.status_code == 500
    assert f"expired after {LEASE_S:g} s" in answer.json()["error"]["message"]


def test_a_reader_that_dies_in_mid_read_frees_the_blocks(prefill: EngineProcess) -> None:
    handle = prefill.prefill(prompt_of(8, 2000))
    fingerprint = _fingerprint()
    ranges = tuple((i, 0, 16) for i in range(125))
    with socket.create_connection(("127.0.0.1", handle["remote_port"]), timeout=5) as connection:
        ask = Ask(Kind.READ, handle["remote_engine_id"], handle["remote_request_id"], "me", fingerprint, ranges)
        connection.sendall(wire.encode_ask(ask))
        kind, _ = wire.decode_head(connection.recv(wire.HEAD_BYTES, socket.MSG_WAITALL), 1 << 20)
        assert kind is Kind.BLOCK
        assert prefill.state()["leases"] == 1
    prefill.wait_until_free(LEASE_S)


def test_another_reader_and_other_weights_are_refused(prefill: EngineProcess) -> None:
    handle = prefill.prefill(prompt_of(9, 40))
    good = Ask(Kind.HOLD, handle["remote_engine_id"], handle["remote_request_id"], "me", _fingerprint())
    assert _ask(handle["remote_port"], good) == (Kind.OK, "")
    other = Ask(Kind.HOLD, good.engine_id, good.handle, "you", good.fingerprint)
    assert "another reader" in _ask(handle["remote_port"], other)[1]
    weights = Ask(Kind.HOLD, good.engine_id, good.handle, "me", "0000")
    assert "different weights" in _ask(handle["remote_port"], weights)[1]
    restarted = Ask(Kind.HOLD, "before", good.handle, "me", good.fingerprint)
    assert "is gone" in _ask(handle["remote_port"], restarted)[1]
    outside = Ask(Kind.READ, good.engine_id, good.handle, "me", good.fingerprint, ((2, 0, 9),))
    assert "outside" in _ask(handle["remote_port"], outside)[1]
    done = Ask(Kind.DONE, good.engine_id, good.handle, "me", good.fingerprint)
    assert _ask(handle["remote_port"], done) == (Kind.OK, "")


def test_garbage_on_the_kv_port_harms_nobody(prefill: EngineProcess) -> None:
    port = prefill.state()["kv_port"]
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x06\x01hello", struct.pack(">IB", 1 << 30, 1)):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(junk)
            assert b"message" in connection.recv(4096)
    assert prefill.http.get("/health").status_code == 200


def test_a_dead_owner_is_a_clear_500(decode: EngineProcess, prefill: EngineProcess) -> None:
    prompt = prompt_of(10, 64)
    handle = {**prefill.prefill(prompt), "remote_port": free_port()}
    failed = decode.metric("vllm:nixl_num_failed_transfers_total")
    answer = decode.post("/v1/completions", completion_body(prompt, max_tokens=2, kv_transfer_params=handle))
    assert answer.status_code == 500
    assert f"127.0.0.1:{handle['remote_port']}" in answer.json()["error"]["message"]
    assert decode.metric("vllm:nixl_num_failed_transfers_total") == failed + 1


def test_damaged_bytes_are_noticed_and_recomputed_if_told_so(
    prefill: EngineProcess, decode: EngineProcess, folder: Path
) -> None:
    prompt = prompt_of(11, 200)
    handle = prefill.prefill(prompt)
    with Relay(handle["remote_port"], flip_at=300_000) as relay:
        damaged = {**handle, "remote_port": relay.port}
        fail = decode.post("/v1/completions", completion_body(prompt, max_tokens=2, kv_transfer_params=damaged))
    assert fail.status_code == 500
    assert "checksum" in fail.json()["error"]["message"]
    careful = EngineProcess("main-decode", folder, "--kv-load-failure-policy", "recompute")
    try:
        handle = prefill.prefill(prompt)
        with Relay(handle["remote_port"], flip_at=300_000) as relay:
            damaged = {**handle, "remote_port": relay.port}
            body = careful.complete(prompt, max_tokens=20, ignore_eos=True, kv_transfer_params=damaged)
        assert body["choices"][0]["token_ids"] == prefill.ids(prompt, 20)
        split = body["usage"]["prompt_tokens_details"]["pdd"]
        assert 0 < split["remote_tokens"] < 200
        assert split["remote_tokens"] + split["computed_tokens"] == 200
    finally:
        assert careful.stop() == 0


def test_a_client_that_hangs_up_while_kv_is_read_frees_both_ends(prefill: EngineProcess, decode: EngineProcess) -> None:
    prompt = prompt_of(12, 3000)
    handle = prefill.prefill(prompt)
    with Relay(handle["remote_port"], hold=True) as relay:
        params = {**handle, "remote_port": relay.port}
        body = completion_body(prompt, max_tokens=50, kv_transfer_params=params, stream=True)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{decode.url}/v1/completions", json=body, timeout=0.5)
        wait_for(lambda: decode.state()["free_blocks"] == decode.state()["total_blocks"], 5)
        prefill.wait_until_free(LEASE_S / 2)


def test_the_reader_goes_through_a_connect_proxy(prefill: EngineProcess, folder: Path) -> None:
    prompt = prompt_of(13, 150)
    with Relay() as proxy:
        engine = EngineProcess("main-decode", folder, "--kv-proxy", f"http://127.0.0.1:{proxy.port}")
        try:
            handle = prefill.prefill(prompt)
            assert engine.ids(prompt, 10, kv_transfer_params=handle) == prefill.ids(prompt, 10)
            assert set(proxy.targets) == {f"127.0.0.1:{handle['remote_port']}"}
        finally:
            assert engine.stop() == 0


def test_a_queued_reader_keeps_its_lease_alive(prefill: EngineProcess, folder: Path) -> None:
    """One slot, taken for longer than the lease: the waiting reader still gets the KV."""
    flags = ("--max-num-seqs", "1", "--kv-lease-s", str(LEASE_S), "--step-ms", "100")
    engine = EngineProcess("main-decode", folder, *flags)
    prompt = prompt_of(14, 100)
    try:
        with ThreadPoolExecutor(2) as pool:
            busy = pool.submit(engine.ids, prompt_of(15, 10), 45)
            wait_for(lambda: engine.state()["running"] == 1, 5)
            waiting = pool.submit(engine.ids, prompt, 5, kv_transfer_params=prefill.prefill(prompt))
            assert len(busy.result()) == 45
            assert waiting.result() == prefill.ids(prompt, 5)
    finally:
        assert engine.stop() == 0


def _fingerprint() -> str:
    from pdd.engine.reference.config import ModelConfig
    from pdd.engine.reference.weights import load_weights

    return load_weights(ModelConfig()).fingerprint


def _ask(port: int, ask: Ask) -> tuple[Kind, str]:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(wire.encode_ask(ask))
        kind, size = wire.decode_head(connection.recv(wire.HEAD_BYTES, socket.MSG_WAITALL), 1 << 20)
        body = connection.recv(size, socket.MSG_WAITALL)
        return kind, wire.decode_error(body) if kind is Kind.ERROR else ""
