"""Certificates are kept while good and replaced for a stated reason, never since something could not be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.controller.samples import LINK

from pdd.common.certs import Pair, make_ca
from pdd.common.errors import InvalidInput
from pdd.controller.desired.config import build_tls_secret
from pdd.controller.labels import Owner
from pdd.controller.material import drain_token_of, leaf_for, pair_of

NOW = datetime(2026, 12, 1, tzinfo=UTC)
NAMES = ["gateway.site-b.models.pdd.internal"]
OWNER = Owner("PDDLink", "models", "site-b", "u", "a")


@pytest.fixture(scope="module")
def ca() -> Pair:
    return make_ca("test", now=NOW)


def secret(pair: Pair, ca: Pair) -> dict[str, Any]:
    return build_tls_secret(OWNER, LINK, name="s", namespace="models", component="gateway", pair=pair, ca_cert=ca.cert)


def leaf(live: dict[str, Any] | None, ca: Pair, at: datetime, days: int = 90, names: list[str] | None = None) -> Any:
    return leaf_for(live, ca, names or NAMES, days=days, renew_before_days=30, now=at)


def test_made_once_then_kept(ca: Pair) -> None:
    first = leaf(None, ca, NOW)
    assert first.why == "there is none"
    again = leaf(secret(first.pair, ca), ca, NOW + timedelta(days=20))
    assert again.pair == first.pair and again.why == ""


def test_renewed_before_it_ends(ca: Pair) -> None:
    first = leaf(None, ca, NOW)
    late = leaf(secret(first.pair, ca), ca, NOW + timedelta(days=61))
    assert late.pair != first.pair and late.why.startswith("it ends at 2027-03-01")


def test_short_life_is_not_renewed_for_ever(ca: Pair) -> None:
    first = leaf(None, ca, NOW, days=3)
    assert leaf(secret(first.pair, ca), ca, NOW + timedelta(hours=12), days=3).why == ""
    assert leaf(secret(first.pair, ca), ca, NOW + timedelta(days=2), days=3).why != ""


def test_another_ca_or_name_replaces_it(ca: Pair) -> None:
    first = leaf(None, ca, NOW)
    assert leaf(secret(first.pair, ca), make_ca("other", now=NOW), NOW).why == "the CA is another one now"
    assert "wanted other.internal" in leaf(secret(first.pair, ca), ca, NOW, names=["other.internal"]).why


def test_broken_secret_is_replaced_and_named(ca: Pair) -> None:
    broken = secret(Pair(b"not pem", b"x"), ca)
    assert "PEM" in leaf(broken, ca, NOW).why


def test_secret_without_key_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidInput, match=r"Secret models/s: 'tls.crt, tls.key'"):
        pair_of({"metadata": {"namespace": "models", "name": "s"}, "data": {}})


def test_drain_token_is_kept_and_else_made() -> None:
    made = drain_token_of(None, "router.json")
    assert len(made) > 20 and made != drain_token_of(None, "router.json")
    import base64

    live = {"data": {"router.json": base64.b64encode(b'{"drainToken": "kept"}').decode()}}
    assert drain_token_of(live, "router.json") == "kept"
    assert drain_token_of({"data": {"router.json": "AAAA"}}, "router.json") not in ("", "kept")
