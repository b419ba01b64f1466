"""Certificates of a link: which are there, which must be made or renewed. Pure but for the making of keys.

Nothing is made anew since a read failed: callers pass what a successful look has shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pdd.common.certs import Pair, issue, not_after
from pdd.common.errors import InvalidInput
from pdd.controller.desired.config import secret_data
from pdd.controller.kube.resources import Object


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate to use. `why` says why it was made now; empty if it is the one that is there."""

    pair: Pair
    not_after: datetime
    why: str = ""


def pair_of(secret: Object) -> Pair:
    """Certificate and key of a kubernetes.io/tls Secret. Raises InvalidInput if one is missing."""
    cert, key = secret_data(secret, "tls.crt"), secret_data(secret, "tls.key")
    if not cert or not key:
        meta = secret["metadata"]
        raise InvalidInput(
            f"Secret {meta.get('namespace')}/{meta['name']}",
            "tls.crt, tls.key",
            "both keys must be there with PEM data",
        )
    return Pair(cert, key)


def leaf_for(
    live: Object | None, ca: Pair, dns_names: Sequence[str], *, days: int, renew_before_days: int, now: datetime
) -> Leaf:
    """The certificate that is there if it is good, else a new one.

    Good: of this CA, for these names, and not ending within `renew_before_days` (at most two thirds of its life, so
    that a short life cannot make it renew for ever).
    """
    why = "there is none"
    if live is not None:
        try:
            pair = pair_of(live)
            why = fault(pair.cert, secret_data(live, "ca.crt"), ca, dns_names, days, renew_before_days, now)
            if not why:
                return Leaf(pair, not_after(pair.cert))
        except InvalidInput as error:
            why = error.message
    made = issue(ca, dns_names, days, now=now)
    return Leaf(made, not_after(made.cert), why)


def fault(
    cert: bytes, ca_cert: bytes, ca: Pair, dns_names: Sequence[str], days: int, renew_before_days: int, now: datetime
) -> str:
    """Why the certificate must be replaced; empty if it is good."""
    from cryptography import x509

    if ca_cert.strip() != ca.cert.strip():
        return "the CA is another one now"
    end = not_after(cert)
    before = min(timedelta(days=renew_before_days), timedelta(days=days) * 2 / 3)
    if end - now <= before:
        return f"it ends at {end:%Y-%m-%dT%H:%M:%SZ}"
    loaded = x509.load_pem_x509_certificate(cert)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )
    if set(names) != set(dns_names):
        return f"it is for {', '.join(names)}, wanted {', '.join(dns_names)}"
    return ""


def drain_token_of(live: Object | None, file: str) -> str:
    """The router's drain token: the one in use, or a new one."""
    import orjson

    if live is not None:
        try:
            token = orjson.loads(secret_data(live, file)).get("drainToken", "")
        except (orjson.JSONDecodeError, AttributeError):
            token = ""
        if token:
            return str(token)
    return secrets.token_urlsafe(24)
