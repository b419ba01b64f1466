"""Who may join the line: certificates, names, versions; and new certificates without a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.link_support import (
    ENDPOINT_NAME,
    GATEWAY_NAME,
    LIMIT_S,
    Lab,
    echo,
    free_port,
    pattern,
    read_all,
    server,
    source,
    until,
    write_pair,
)

from pdd.api.config import TLSFiles
from pdd.common.certs import issue, make_ca
from pdd.link.frames import PROTOCOL_VERSION, Frame, FrameType
from pdd.link.lines import read_frame, send_frame
from pdd.link.sockets import dial
from pdd.link.tls import TLSContexts, handshake


def failures(lab: Lab, reason: str, *, at: str) -> float:
    """A counter of refused streams."""
    end = lab.gateway if at == "gateway" else lab.endpoint
    name = "pdd_link_handshake_failures_total" if at == "gateway" else "pdd_link_line_dial_failures_total"
    assert end is not None
    return end.metrics._registry.get_sample_value(name, {"reason": reason}) or 0.0


async def refused(lab: Lab, caplog: pytest.LogCaptureFixture, *said: str) -> None:
    """The link does not come up; the log says why."""
    try:
        await lab.start_gateway()
        await lab.start_endpoint()
        await until(lambda: failures(lab, "CertificateRefused", at="endpoint") >= 2)
        assert lab.gateway is not None
        assert lab.gateway.sessions == {}
    finally:
        await lab.stop()
    for words in said:
        assert words in caplog.text


async def test_an_endpoint_of_another_ca_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    lab.endpoint_tls = write_pair(tmp_path, "endpoint", issue(make_ca(), [ENDPOINT_NAME]), lab.ca, GATEWAY_NAME)
    await refused(lab, caplog, "refuses our certificate", "tls.cert")


async def test_a_gateway_of_another_ca_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    lab.gateway_tls = write_pair(tmp_path, "gateway", issue(make_ca(), [GATEWAY_NAME]), lab.ca, ENDPOINT_NAME)
    await refused(lab, caplog, "the peer's certificate is refused", "tls.ca")


async def test_a_gateway_with_another_name_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    lab.gateway_tls = write_pair(tmp_path, "gateway", issue(lab.ca, ["impostor.pdd"]), lab.ca, ENDPOINT_NAME)
    await refused(lab, caplog, GATEWAY_NAME, "tls.peerName")


async def test_an_endpoint_with_another_name_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    lab.endpoint_tls = write_pair(tmp_path, "endpoint", issue(lab.ca, ["impostor.pdd"]), lab.ca, GATEWAY_NAME)
    try:
        await lab.start_gateway()
        await lab.start_endpoint()
        await until(lambda: failures(lab, "CertificateRefused", at="gateway") >= 2)
        assert lab.gateway is not None
        assert lab.gateway.sessions == {}
    finally:
        await lab.stop()
    assert "the peer's certificate is for impostor.pdd, not for 'endpoint.link.pdd'" in caplog.text


async def test_a_plain_connection_gets_nowhere(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    await lab.start_gateway()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.line_port)
        writer.write(b"GET /members HTTP/1.1\r\n\r\n")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(100), LIMIT_S)
        await until(lambda: failures(lab, "CertificateRefused", at="gateway") == 1)
        writer.transport.abort()
    finally:
        await lab.stop()


async def hello(lab: Lab, payload: bytes) -> dict[str, object]:
    raw = await dial("127.0.0.1", lab.line_port, 5)
    sock = await handshake(raw, TLSContexts(lab.endpoint_tls, server=False), server=False, timeout_s=5)
    try:
        await send_frame(sock, Frame(FrameType.HELLO, payload=payload), 5)
        found: dict[str, object] = json.loads(bytes((await read_frame(sock, 5)).payload))
        return found
    finally:
        sock.close()


async def test_another_version_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    await lab.start_gateway()
    try:
        answer = await hello(lab, b'{"version": 99, "new": "fields"}')
        assert answer["status"] == "refused"
        assert f"speaks link protocol 99, this gateway speaks {PROTOCOL_VERSION}" in str(answer["reason"])
        assert "run the same release on both ends" in caplog.text
        assert (await hello(lab, b"nonsense"))["status"] == "refused"
    finally:
        await lab.stop()


async def test_an_endpoint_says_why_its_version_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdd.link.hello.PROTOCOL_VERSION", 99)  # what the gateway speaks; Hello's default stays
    lab = Lab(tmp_path)
    await lab.start_gateway()
    await lab.start_endpoint()
    try:
        await until(lambda: failures(lab, "StreamRefused", at="endpoint") >= 1)
    finally:
        await lab.stop()
    assert "the gateway refuses the stream: the endpoint speaks link protocol 1, this gateway speaks 99" in caplog.text


async def test_new_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    async with server(echo) as engine_port, server(source(1_000_000)) as port:
        lab = Lab(tmp_path)
        lab.engine_port = engine_port
        await lab.start()
        try:
            before = serials(lab)
            old_ca = lab.ca
            lab.ca = make_ca()
            bundle = lab.ca.cert + old_ca.cert
            for name, peer in (("gateway", ENDPOINT_NAME), ("endpoint", GATEWAY_NAME)):
                files = write_pair(tmp_path / "new", name, issue(lab.ca, [f"{name}.link.pdd"]), lab.ca, peer)
                (tmp_path / "new" / f"{name}.ca").write_bytes(bundle)
                swap(files, tmp_path)
            for carrier in list(lab.session("gateway").bulk.carriers.values()):
                carrier.fail("so that it is dialled again")
            await until(lambda: lab.is_up() and not serials(lab) & before)
            reader, writer = await lab.connect_kv(port)
            writer.write(b"x")
            assert await read_all(reader) == pattern(1_000_000)
            writer.transport.abort()
        finally:
            await lab.stop()


async def test_a_half_written_certificate_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    async with server(echo) as engine_port:
        lab = Lab(tmp_path)
        lab.engine_port = engine_port
        await lab.start()
        try:
            await asyncio.to_thread(Path(lab.gateway_tls.cert).write_bytes, b"-----BEGIN CERTIFICATE-----\nMII")
            lab.session("gateway").bulk.carriers[0].fail("so that it is dialled again")
            await until(lambda: 0 not in lab.session("gateway").bulk.carriers)
            await lab.up()
        finally:
            await lab.stop()


def swap(files: TLSFiles, folder: Path) -> None:
    for path in (files.cert, files.key, files.ca):
        os.replace(path, folder / Path(path).name)


def serials(lab: Lab) -> set[str]:
    """Of the gateway's certificate, as the endpoint's bulk streams see it."""
    found = set()
    for carrier in lab.session("endpoint").bulk.carriers.values():
        certificate = carrier.sock.getpeercert()
        assert certificate is not None
        found.add(str(certificate["serialNumber"]))
    return found


# -- the command


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pdd.link", *args]


def test_a_bad_configuration_exits_2_and_names_field_value_and_remedy(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    config = lab.gateway_config().model_dump(mode="json", by_alias=True)
    cases = {
        "allow.0": {**config, "allow": ["nowhere"]},
        "tls.cert": {**config, "tls": {**config["tls"], "cert": "/nowhere/tls.crt"}},
        "linePort": {**config, "linePort": 70000},
    }
    for field, values in cases.items():
        path = tmp_path / "bad.json"
        path.write_text(json.dumps(values))
        done = subprocess.run(command("gateway", "--config", str(path)), capture_output=True, text=True, timeout=20)
        assert done.returncode == 2, done.stderr
        assert field in done.stderr
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
    done = subprocess.run(command("endpoint", "--config", "/nowhere"), capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_a_port_in_use_exits_2(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = tmp_path / "g.json"
    path.write_text(lab.gateway_config().model_dump_json(by_alias=True))
    with socket.create_server(("127.0.0.1", lab.line_port)):
        done = subprocess.run(command("gateway", "--config", str(path)), capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "linePort" in done.stderr


async def test_sigterm_ends_the_processes_within_five_seconds(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.engine_port = free_port()
    (tmp_path / "g.json").write_text(lab.gateway_config().model_dump_json(by_alias=True))
    (tmp_path / "e.json").write_text(lab.endpoint_config().model_dump_json(by_alias=True))
    log = (tmp_path / "log").open("wb")
    processes = [
        await asyncio.create_subprocess_exec(*command(kind, "--config", str(tmp_path / file)), stderr=log)
        for kind, file in (("gateway", "g.json"), ("endpoint", "e.json"))
    ]
    try:
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    if (await lab.get("/readyz", lab.endpoint_http_port))[0] == 200:
                        break
                except OSError:
                    pass
                await asyncio.sleep(0.05)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [await asyncio.wait_for(process.wait(), 5) for process in processes]
        assert codes == [0, 0], (tmp_path / "log").read_text()
    finally:
        log.close()
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
