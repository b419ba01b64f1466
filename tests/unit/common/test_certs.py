"""Certificates: what is issued is accepted by TLS peers, and only under its CA and name."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdd.common.certs import Pair, issue, make_ca, not_after
from pdd.common.errors import InvalidInput


def shake_hands(folder: Path, server: Pair, client: Pair, ca: Pair, client_ca: Pair, name: str) -> None:
    """A TLS 1.3 handshake in memory, both sides verified. Raises ssl.SSLError."""
    contexts = []
    for end, pair, trusted in (("server", server, ca), ("client", client, client_ca)):
        for part in ("cert", "key"):
            (folder / f"{end}.{part}").write_bytes(getattr(pair, part))
        (folder / f"{end}.ca").write_bytes(trusted.cert)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if end == "server" else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(folder / f"{end}.cert", folder / f"{end}.key")
        context.load_verify_locations(folder / f"{end}.ca")
        contexts.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = contexts[0].wrap_bio(to_server, to_client, server_side=True)
    two = contexts[1].wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (two, one):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
        if len(done) == 2:
            return
    raise AssertionError("the handshake does not end")


def test_both_ends_accept_each_other(tmp_path: Path) -> None:
    ca = make_ca()
    shake_hands(tmp_path, issue(ca, ["gateway.pdd"]), issue(ca, ["endpoint.pdd"]), ca, ca, "gateway.pdd")


def test_another_name_is_refused(tmp_path: Path) -> None:
    ca = make_ca()
    with pytest.raises(ssl.SSLCertVerificationError, match="gateway"):
        shake_hands(tmp_path, issue(ca, ["gateway.pdd"]), issue(ca, ["endpoint.pdd"]), ca, ca, "other-gateway.pdd")


def test_another_ca_is_refused(tmp_path: Path) -> None:
    ca, other = make_ca(), make_ca()
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, issue(other, ["gateway.pdd"]), issue(ca, ["endpoint.pdd"]), ca, ca, "gateway.pdd")
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, issue(ca, ["gateway.pdd"]), issue(other, ["endpoint.pdd"]), ca, ca, "gateway.pdd")


def test_an_expired_leaf_is_refused(tmp_path: Path) -> None:
    ca = make_ca()
    old = issue(ca, ["gateway.pdd"], days=1, now=datetime.now(UTC) - timedelta(days=2))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tmp_path, old, issue(ca, ["endpoint.pdd"]), ca, ca, "gateway.pdd")


def test_a_leaf_cannot_issue(tmp_path: Path) -> None:
    ca = make_ca()
    leaf = issue(ca, ["gateway.pdd"])
    forged = issue(Pair(cert=leaf.cert, key=leaf.key), ["gateway.pdd"])
    chained = Pair(cert=forged.cert + leaf.cert, key=forged.key)
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, chained, issue(ca, ["endpoint.pdd"]), ca, ca, "gateway.pdd")


def test_validity_is_what_was_asked_for() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert not_after(issue(make_ca(now=now), ["a"], days=30, now=now).cert) == now + timedelta(days=30)


def test_wrong_input_is_named() -> None:
    with pytest.raises(InvalidInput, match="dns_names"):
        issue(make_ca(), [])
    with pytest.raises(InvalidInput, match="ca"):
        issue(Pair(b"nonsense", b"nonsense"), ["a"])
    with pytest.raises(InvalidInput, match="cert"):
        not_after(b"nonsense")
