"""The router's HTTP, over scripted engines: errors, time-outs, bounds, back-pressure, the API's shapes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from tests.integration.fake_engine import FakeEngine, true_token

from pdd.api.config import RouterConfig
from pdd.router.__main__ import build_services, main
from pdd.router.app import App
from pdd.router.serving import uvicorn_config

PROMPT = [65, 66, 67, 68]
BODY = {"model": "tiny", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def truth(count: int) -> list[int]:
    return [true_token(4, k) for k in range(count)]


@contextlib.asynccontextmanager
async def router(
    p: list[FakeEngine], r: list[FakeEngine], m: list[FakeEngine], **extra: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A router in this process over these engines; a client for it."""
    config = RouterConfig.model_validate(
        {
            "deployment": "tiny",
            "servedModelNames": ["tiny"],
            "capabilities": {"clampsRemoteKv": True, "positionKeyedSampling": True},
            "maxContextTokens": 100_000,
            "kv": {"bytesPerToken": 4096},
            "prefill": {"urls": [one.url for one in p]},
            "relayDecode": {"urls": [one.url for one in r]},
            "mainDecode": {"urls": [one.url for one in m]},
            "link": {"capacityBps": 100_000_000, "rttMs": 20},
            "allowOverrides": True,
            **extra,
        }
    )
    settings = uvicorn_config(App(build_services(config)), "127.0.0.1", 0, loop="none")
    server = uvicorn.Server(settings)
    serving = asyncio.get_running_loop().create_task(server._serve())
    try:
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            for _ in range(200):
                if (await client.get("/ready")).status_code == 200:
                    break
                await asyncio.sleep(0.02)
            yield client
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait_for(serving, 10)


async def post(client: httpx.AsyncClient, override: str = "", **change: Any) -> httpx.Response:
    headers = {"x-pdd-trace": "1"} | ({"x-pdd-pipeline-override": override} if override else {})
    return await client.post("/v1/completions", json={**BODY, **change}, headers=headers)


def trace_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    return dict(reply.json()["pdd"])


async def test_prefill_failures_of_every_kind_are_retried_elsewhere() -> None:
    for behaviour in ("reset", "500", "garbage", "429"):
        async with (
            FakeEngine(lambda _, b=behaviour: b) as bad,
            FakeEngine() as good,
            FakeEngine() as relay,
            FakeEngine() as md,
            router([bad, good], [relay], [md]) as client,
        ):
            for _ in range(2):
                assert trace_of(await post(client, "P-MD"))["token_ids"] == truth(8), behaviour
            assert good.bodies, behaviour


async def test_streams_that_break_or_drip_lose_and_double_nothing() -> None:
    for relay_does, main_does in (("break", ""), ("drip", "drip"), ("", "break"), ("break", "break")):
        said: dict[str, int] = {"relay": 0, "main": 0}

        def first(who: str, what: str, said: dict[str, int] = said) -> Any:
            def behave(body: dict[str, Any]) -> str:
                said[who] += body["stream"]
                return what if body["stream"] and (said[who] <= 1 or what == "drip") else ""

            return behave

        async with (
            FakeEngine() as p,
            FakeEngine(first("relay", relay_does)) as r,
            FakeEngine(first("main", main_does)) as m,
        ):
            r.delay_s = 0.01
            async with router([p], [r], [m]) as client:
                assert trace_of(await post(client, "P-RLD-MD", max_tokens=40))["token_ids"] == truth(40)


async def test_a_silent_engine_is_given_up_after_the_gap_bound() -> None:
    hung = {"once": False}

    def behave(body: dict[str, Any]) -> str:
        hung["once"], before = True, hung["once"]
        return "" if before else "hang"

    async with (
        FakeEngine(behave) as p,
        FakeEngine() as r,
        FakeEngine() as m,
        router([p], [r], [m], limits={"firstTokenTimeoutS": 1}) as client,
    ):
        started = time.monotonic()
        trace = trace_of(await post(client, "P-MD"))
        assert trace["token_ids"] == truth(8) and 0.9 < time.monotonic() - started < 5
        assert trace["retries"][0]["reason"] == "TimedOut"


async def test_the_requests_deadline_is_a_504() -> None:
    async with (
        FakeEngine(lambda _: "hang") as p,
        FakeEngine() as r,
        FakeEngine() as m,
        router([p], [r], [m], limits={"requestTimeoutS": 1}) as client,
    ):
        reply = await post(client, "P-MD")
        assert reply.status_code == 504 and reply.json()["error"]["code"] == "RequestTimedOut"
        await until(lambda: p.open == 0)


async def test_overload_is_429_with_retry_after_and_places_come_back() -> None:
    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m:
        p.delay_s = 0.4
        async with router([p], [r], [m], limits={"maxConcurrent": 1, "maxQueued": 1}) as client:
            replies = await asyncio.gather(*(post(client, "P-MD") for _ in range(6)))
            codes = sorted(reply.status_code for reply in replies)
            assert codes == [200, 200, 429, 429, 429, 429]
            refused = next(reply for reply in replies if reply.status_code == 429)
            assert int(refused.headers["retry-after"]) >= 1 and refused.json()["error"]["type"] == "rate_limit_error"
            assert refused.headers["x-request-id"]
            assert (await post(client, "P-MD")).status_code == 200


async def test_relay_full_sends_long_transfers_over_p_md_and_without_a_line_refuses() -> None:
    long = {"prompt": PROMPT * 500, "max_tokens": 600}
    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m:
        for one in (p, r, m):
            one.base_tokens = 2000
        r.delay_s = m.delay_s = 0.02
        limits = {"maxRelaySessions": 1}
        async with router([p], [r], [m], limits=limits) as client:
            first = asyncio.ensure_future(post(client, "P-RLD", **long))
            await until(lambda: r.open == 1)
            reply = await post(client, **{**long, "max_tokens": 5})
            assert (reply.headers["x-pdd-pipeline"], reply.headers["x-pdd-reason"]) == ("P-MD", "RelayFull")
            first.cancel()
        async with router([p], [r], [], limits=limits) as client:
            first = asyncio.ensure_future(post(client, **long))
            await until(lambda: r.open == 1)
            reply = await post(client, **long)
            assert reply.status_code == 429 and reply.headers["x-pdd-reason"] == "RelayFullAndLineLost"
            assert "retry-after" in reply.headers
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first


async def test_hang_up_reaches_every_engine_while_they_are_silent() -> None:
    async with (
        FakeEngine() as p,
        FakeEngine(lambda b: "hang") as r,
        FakeEngine(lambda b: "hang") as m,
        router([p], [r], [m]) as client,
    ):
        with contextlib.suppress(httpx.ReadTimeout):
            await client.post(
                "/v1/completions", json=BODY, timeout=0.3, headers={"x-pdd-pipeline-override": "P-RLD-MD"}
            )
        await until(lambda: p.open == r.open == m.open == 0)
        load = (await client.get("/internal/load")).json()
        assert all(engine["sessions"] == 0 for engine in load["engines"])
        assert load["relay"]["sessions"] == 0


async def test_a_client_that_does_not_read_holds_the_engines_stream_back() -> None:
    async with (
        FakeEngine() as p,
        FakeEngine() as r,
        FakeEngine() as m,
        router([p], [r], [m]) as client,
    ):
        host, port = client.base_url.host, client.base_url.port
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        body = json.dumps({**BODY, "max_tokens": 90_000, "stream": True}).encode()
        lines = ["POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines.append("x-pdd-pipeline-override: P-MD")
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await reader.readuntil(b"data: ")
        await asyncio.sleep(1.0)
        metrics = (await client.get("/metrics")).text
        assert "pdd_router_requests_in_flight 1.0" in metrics
        assert m.open == 1  # it has not got rid of its 90,000 tokens
        writer.transport.abort()
        await until(lambda: m.open == 0)


async def test_usage_chunks_trace_and_done_come_in_order() -> None:
    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m, router([p], [r], [m]) as client:
        body = {**BODY, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
        headers = {"x-pdd-trace": "1", "x-request-id": "mine-1", "x-pdd-pipeline-override": "P-MD"}
        reply = await client.post("/v1/completions", json=body, headers=headers)
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["x-request-id"] == "mine-1" and reply.headers["x-pdd-pipeline"] == "P-MD"
        lines = [line[6:] for line in reply.text.splitlines() if line]
        assert lines[-1] == "[DONE]"
        events = [json.loads(line) for line in lines[:-1]]
        assert events[0]["choices"][0]["prompt_token_ids"] == PROMPT
        assert [i for e in events for c in e["choices"] for i in c["token_ids"]] == truth(8)
        assert events[-3]["choices"][0]["finish_reason"] == "length"
        assert events[-2]["usage"]["completion_tokens"] == 8 and events[-2]["usage"]["prompt_tokens"] == 4
        assert events[-1]["choices"] == [] and events[-1]["pdd"]["runs"] == [["P", 1], ["MD", 7]]


async def test_chat_streams_role_then_content_then_finish() -> None:
    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m, router([p], [r], [m]) as client:
        messages = [{"role": "user", "content": "hi"}]
        body = {"model": "tiny", "messages": messages, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
        for one in (p, r, m):
            one.base_tokens = 6
        whole = (await client.post("/v1/chat/completions", json=body)).json()
        assert whole["object"] == "chat.completion" and whole["choices"][0]["message"]["role"] == "assistant"
        reply = await client.post("/v1/chat/completions", json={**body, "stream": True})
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line and line != "data: [DONE]"]
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        assert text == whole["choices"][0]["message"]["content"] != ""
        assert events[-1]["choices"][0] | {"logprobs": None} == {
            "index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"
        }  # fmt: skip


async def test_a_stop_string_over_the_handoff_ends_all_legs() -> None:
    stop = bytes(truth(9)[5:9]).decode("latin-1")
    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m:
        r.delay_s = 0.02
        async with router([p], [r], [m]) as client:
            reply = await post(client, "P-RLD-MD", max_tokens=60, stop=[stop])
            choice, trace = reply.json()["choices"][0], trace_of(reply)
            assert choice["finish_reason"] == "stop" and choice["text"] == bytes(truth(5)).decode()
            assert trace["output_tokens"] == reply.json()["usage"]["completion_tokens"] == 9
            await until(lambda: p.open == r.open == m.open == 0)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "param"),
    [
        ("POST", "/v1/completions", b"{", 400, None),
        ("POST", "/v1/completions", b"[1]", 400, None),
        ("POST", "/v1/completions", b"", 400, None),
        ("POST", "/v1/completions", b'{"model":"x","prompt":"a"}', 404, "model"),
        ("POST", "/v1/completions", b'{"prompt":"a"}', 400, "model"),
        ("POST", "/v1/completions", b'{"model":"tiny","prompt":"a","n":3}', 400, "n"),
        ("POST", "/v1/chat/completions", b'{"model":"tiny","messages":[]}', 400, "messages"),
        ("GET", "/v1/completions", b"", 405, None),
        ("GET", "/nowhere", b"", 404, None),
        ("PUT", "/internal/drain", b'{"hosts":"a"}', 400, "hosts"),
    ],
)
async def test_errors_have_openais_shape(
    method: str, path: str, content: bytes, status: int, param: str | None
) -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        reply = await client.request(method, path, content=content)
        assert reply.status_code == status
        error = reply.json()["error"]
        assert error["message"] and error["type"] and error["param"] == param
        assert reply.headers["x-request-id"]


async def test_a_body_beyond_the_bound_is_413() -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], [], limits={"maxBodyBytes": 1000}) as client:
        reply = await client.post("/v1/completions", content=b"x" * 2000)
        assert reply.status_code == 413


async def test_ready_names_the_stage_that_is_missing() -> None:
    async with FakeEngine() as r, router([], [r], []) as client:
        reply = await client.get("/ready")
        assert reply.status_code == 503 and "prefill" in reply.json()["error"]["message"]
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "tiny"


async def test_lengths_and_hits_of_requests_are_told() -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        usage = (await post(client)).json()["usage"]
        told = (await client.get("/internal/workload")).json()
        ((age_s, prompt, cached, output),) = told["rows"]
        assert 0 <= age_s <= told["reach_s"] < 60 and told["unserved"] == 0
        assert (prompt, output) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert cached == usage["prompt_tokens_details"]["cached_tokens"]
        assert "pdd_router_prompt_hit_ratio_count 1.0" in (await client.get("/metrics")).text


async def test_drain_sends_no_new_session_there() -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], []) as client:
        assert (await post(client)).status_code == 200
        reply = await client.put("/internal/drain", json={"hosts": ["127.0.0.1"], "ttl_s": 30})
        assert reply.json() == {"drained": 1, "sessions": 0}
        assert (await client.get("/internal/load")).json()["engines"][1]["draining"] is True
        assert (await post(client)).status_code == 429
        await client.put("/internal/drain", json={"hosts": ["127.0.0.1"], "ttl_s": 0})
        assert (await post(client)).status_code == 200


async def test_drain_with_a_token_asks_for_it() -> None:
    async with FakeEngine() as p, FakeEngine() as r, router([p], [r], [], drainToken="secret") as client:
        body = {"hosts": [], "ttl_s": 1}
        assert (await client.put("/internal/drain", json=body)).status_code == 403
        headers = {"authorization": "Bearer secret"}
        assert (await client.put("/internal/drain", json=body, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "sglang"}, "engine"),
        ({"tokenizer": "/nowhere"}, "tokenizer"),
        ({"prefill": {"urls": ["ftp://x"]}}, "prefill.urls"),
        ({"relayDecode": {"dns": "no-port"}}, "relayDecode.dns"),
        ({"maxContextTokens": 0}, "maxContextTokens"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_configuration_exits_2_with_one_line(
    change: dict[str, Any], named: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "deployment": "tiny", "servedModelNames": ["tiny"], "maxContextTokens": 100, "kv": {"bytesPerToken": 1},
        "prefill": {}, "relayDecode": {}, "link": {"capacityBps": 1, "rttMs": 1}, **change,
    }  # fmt: skip
    path = tmp_path / "router.json"
    path.write_text(json.dumps(config))
    assert main(["--config", str(path), "--port", "1"]) == 2
    said = capsys.readouterr().err
    assert named in said and said.count("\n") == 1


async def until(condition: Any, timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


async def test_an_engine_that_restarts_between_two_health_checks_is_thought_empty() -> None:
    prompt = list(range(32, 32 + 160))

    async def missing(client: httpx.AsyncClient) -> int:
        return int(trace_of(await post(client, "P-MD", prompt=prompt))["kv"]["missing_tokens"])

    async with FakeEngine() as p, FakeEngine() as r, FakeEngine() as m, router([p], [r], [m]) as client:
        assert await missing(client) == 160
        assert await missing(client) <= 16
        m.engine_id = "second"
        deadline = time.monotonic() + 10
        while await missing(client) < 160:
            assert time.monotonic() < deadline, "the restart was not noticed"
            await asyncio.sleep(1.2)
