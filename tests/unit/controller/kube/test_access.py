"""Kubeconfigs: parsed strictly; one from a Secret can make the operator neither read its files nor run programs."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdd.common.errors import Forbidden, InvalidInput, TimedOut
from pdd.controller.kube import credentials
from pdd.controller.kube.access import ClusterAccess, ExecPlugin, own_access, parse_kubeconfig, plugin_of
from pdd.controller.kube.credentials import TokenSource, allowed_plugin, parse_exec_credential, run_plugin


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "pdd"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://b:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": {"token": "t", **(user or {})}}],
        }
    )


def parse(text: str, *, allow_files: bool = False) -> ClusterAccess:
    return parse_kubeconfig(text, where="Secret n/s", allow_files=allow_files)


def test_token_and_ca_are_read() -> None:
    pem = base64.b64encode(b"PEM").decode()
    access = parse(kubeconfig({"certificate-authority-data": pem}))
    assert (access.server, access.token, access.ca_pem, access.namespace) == ("https://b:6443", "t", "PEM", "pdd")


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority": "/etc/shadow"}, None),
        (None, {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}),
        (None, {"client-key": "/x"}),
        (None, {"exec": {"command": "sh"}}),
        (None, {"auth-provider": {"name": "gcp"}}),
    ],
)
def test_kubeconfig_of_a_secret_may_not_point_at_files_or_programs(cluster: Any, user: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(kubeconfig(cluster, user))
    assert caught.value.reason == "CredentialsInvalid" and "Secret n/s" in caught.value.message


@pytest.mark.parametrize("text", ["", "- a", "{", "current-context: nope", kubeconfig({"server": "http://b"})])
def test_broken_kubeconfig_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="Secret n/s"):
        parse(text)


def test_fingerprint_changes_with_token_ca_and_server_only() -> None:
    same = parse(kubeconfig())
    assert same.fingerprint == parse(kubeconfig()).fingerprint
    assert same.fingerprint != parse(kubeconfig(user={"token": "t2"})).fingerprint
    assert same.fingerprint != parse(kubeconfig({"server": "https://c:6443"})).fingerprint


def test_outside_a_pod_kubeconfig_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidInput, match="KUBECONFIG"):
        own_access()


async def test_token_file_is_read_again_after_a_minute_or_a_401(tmp_path: Path) -> None:
    file, now = tmp_path / "token", [0.0]
    file.write_text("one\n")
    source = TokenSource(ClusterAccess("https://b", token_file=str(file)), clock=lambda: now[0])
    assert await source.token() == "one"
    file.write_text("two")
    assert await source.token() == "one"
    assert source.invalidate() and await source.token() == "two"
    file.write_text("three")
    now[0] = 61.0
    assert await source.token() == "three"


async def test_fixed_token_cannot_be_refreshed() -> None:
    source = TokenSource(ClusterAccess("https://b", token="t"))
    assert await source.token() == "t" and not source.invalidate()


def plugin(tmp_path: Path, script: str) -> ExecPlugin:
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return plugin_of({"command": str(path), "args": ["x"], "env": [{"name": "GREETING", "value": "hello"}]})


async def test_plugin_gives_a_token_until_it_ends(tmp_path: Path) -> None:
    given = plugin(tmp_path, 'echo "{\\"status\\":{\\"token\\":\\"$GREETING-$1\\"}}"')
    assert await run_plugin(given, ClusterAccess("https://b")) == ("hello-x", credentials.PLUGIN_DEFAULT_LIFE_S)


async def test_failing_plugin_shows_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="ended with 3: not logged in"):
        await run_plugin(plugin(tmp_path, "echo not logged in >&2; exit 3"), ClusterAccess("https://b"))


async def test_hanging_plugin_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_TIMEOUT_S", 0.2)
    with pytest.raises(TimedOut, match="no answer within"):
        await run_plugin(plugin(tmp_path, "exec sleep 30"), ClusterAccess("https://b"))


def test_plugin_credential_expiry() -> None:
    out = b'{"status": {"token": "t", "expirationTimestamp": "2026-12-01T01:00:00Z"}}'
    assert parse_exec_credential(out, "p", datetime(2026, 12, 1, tzinfo=UTC)) == ("t", 3600.0)
    with pytest.raises(Forbidden, match=r"status\.token"):
        parse_exec_credential(b"{}", "p")


@pytest.mark.parametrize("command", ["/bin/sh", "../sh", "", "..", "missing"])
def test_only_programs_of_the_plugin_folder_run(command: str, tmp_path: Path) -> None:
    (tmp_path / "ok").write_text("")
    with pytest.raises(InvalidInput, match=r"spec\.member\.exec\.command"):
        allowed_plugin(command, str(tmp_path))
    (tmp_path / "ok").chmod(0o755)
    assert allowed_plugin("ok", str(tmp_path)) == str(tmp_path / "ok")
