"""From an administrator's kubeconfig of B to a self-contained one."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from pdd.api.validate import validate_texts
from pdd.cli.link_kubeconfig import (
    build_secret,
    check_server,
    compose_kubeconfig,
    given_credentials,
    link_example,
    select_member,
)
from pdd.common.errors import InvalidInput

FILES = {"ca.pem": b"CA", "crt.pem": b"CRT", "key.pem": b"KEY", "token": b"tok\n"}


def kubeconfig(**user: Any) -> dict[str, Any]:
    return {
        "current-context": "b",
        "contexts": [
            {"name": "b", "context": {"cluster": "cb", "user": "ub"}},
            {"name": "broken", "context": {"cluster": "gone", "user": "ub"}},
        ],
        "clusters": [{"name": "cb", "cluster": {"server": "https://b:6443", "certificate-authority": "ca.pem"}}],
        "users": [{"name": "ub", "user": user}],
    }


def test_the_current_context_is_taken_and_files_come_inline() -> None:
    member = select_member(kubeconfig(token="t"), "", FILES.__getitem__)
    assert (member.server, member.context) == ("https://b:6443", "b")
    assert base64.b64decode(member.ca_data) == b"CA"


@pytest.mark.parametrize(
    ("config", "context", "words"),
    [
        ("text", "", "is not a kubeconfig"),
        ({"contexts": [{"name": "x"}]}, "", "one of x"),
        (kubeconfig(), "zz", "choose one of b, broken"),
        (kubeconfig(), "broken", "clusters"),
    ],
)
def test_a_missing_part_is_named(config: Any, context: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        select_member(config, context, FILES.__getitem__)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t"}, {"token": "t"}),
        ({"tokenFile": "token"}, {"token": "tok"}),
        (
            {"client-certificate": "crt.pem", "client-key": "key.pem"},
            {"client-certificate-data": "Q1JU", "client-key-data": "S0VZ"},
        ),
        ({"client-certificate-data": "YQ==", "client-key-data": "Yg=="},) * 2,
    ],
)
def test_given_credentials_come_inline(user: dict[str, str], expected: dict[str, str]) -> None:
    assert given_credentials(user, FILES.__getitem__) == expected


@pytest.mark.parametrize(("user", "words"), [({"exec": {"command": "aws"}}, "spec.member.exec"), ({}, "neither")])
def test_credentials_that_the_operator_cannot_use_are_refused(user: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        given_credentials(user, FILES.__getitem__)


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:1", "https://[::1]:6443"])
def test_a_loopback_address_is_refused_unless_it_was_asked_for(server: str) -> None:
    with pytest.raises(InvalidInput, match="this machine only"):
        check_server(server, given=False)
    check_server(server, given=True)
    check_server("https://10.0.0.1:6443", given=False)


@pytest.mark.parametrize("server", ["", "b:6443", "http://b:6443", "https://"])
def test_a_server_must_be_an_https_url(server: str) -> None:
    with pytest.raises(InvalidInput, match="https://host:port"):
        check_server(server, given=True)


def test_the_result_names_no_file_and_is_what_the_controller_reads() -> None:
    from pdd.controller.kube.access import parse_kubeconfig

    member = select_member(kubeconfig(token="t"), "", FILES.__getitem__)
    text = compose_kubeconfig(
        member, {"token": "T"}, server="https://node:6443", tls_server_name="b.example", namespace="pdd"
    )
    access = parse_kubeconfig(text, where="secret", allow_files=False)
    assert (access.server, access.token, access.namespace) == ("https://node:6443", "T", "pdd")
    assert access.tls_server_name == "b.example" and access.ca_pem == "CA"


def test_the_secret_holds_the_kubeconfig_the_identity_and_the_expiry() -> None:
    made = build_secret("b", "links", "text", identity="uid", expires="2027-01-01T00:00:00Z")
    assert base64.b64decode(made["data"]["kubeconfig"]) == b"text"
    assert made["metadata"]["annotations"] == {
        "pdd.dev/member-kube-system-uid": "uid",
        "pdd.dev/credentials-expire": "2027-01-01T00:00:00Z",
    }
    assert (
        "pdd.dev/credentials-expire"
        not in build_secret("b", "l", "t", identity="u", expires="")["metadata"]["annotations"]
    )


def test_the_printed_link_is_valid() -> None:
    text = link_example("site-b", "links", "pdd", "7d0a0d5e-5d7e-4a42-9a53-8f0c0f6a2b11")
    assert validate_texts([("-", text)]).problems == ()
    assert yaml.safe_load(text)["spec"]["member"]["kubeconfigSecretRef"] == {"name": "site-b"}
