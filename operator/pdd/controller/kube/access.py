"""How to reach a cluster: parsed from a kubeconfig, from the pod's service account, or for an exec plugin. Pure but
for files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from pdd.common.errors import InvalidInput

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A client-go credential plugin: run `command args` with `env`, read an ExecCredential from its standard output."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """All that a client needs. Exactly one of token, token_file, client certificate and plugin identifies us (or
    none)."""

    server: str
    ca_pem: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    token: str = ""
    token_file: str = ""
    client_cert_pem: str = ""
    client_key_pem: str = ""
    plugin: ExecPlugin | None = None
    namespace: str = ""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with anything that would need a new client. Not a secret."""
        parts = (
            self.server,
            self.ca_pem,
            str(self.insecure),
            self.tls_server_name,
            self.token,
            self.token_file,
            self.client_cert_pem,
            self.client_key_pem,
            repr(self.plugin),
        )
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]


def parse_kubeconfig(text: str, *, where: str, allow_files: bool, context: str = "") -> ClusterAccess:
    """The access that the current context of a kubeconfig describes.

    `where` names the source in errors. `allow_files` False refuses everything that would make the operator read its own
    files or run programs: a kubeconfig from a Secret was written by somebody else.
    """
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(
            where, text[:40], "is not YAML; put a kubeconfig file there", reason="CredentialsInvalid"
        ) from error
    if not isinstance(config, dict):
        raise InvalidInput(where, text[:40], "is not a kubeconfig", reason="CredentialsInvalid")
    name = context or config.get("current-context") or ""
    ctx = _named(config, "contexts", name, where)["context"]
    cluster = _named(config, "clusters", ctx.get("cluster", ""), where)["cluster"]
    user = _named(config, "users", ctx.get("user", ""), where).get("user") or {}
    if not allow_files:
        _refuse_files(cluster, user, where)
    server = str(cluster.get("server", ""))
    if not server.startswith("https://") and not (allow_files and server.startswith("http://")):
        raise InvalidInput(
            f"{where}: clusters[].cluster.server", server, "must be an https:// URL", reason="CredentialsInvalid"
        )
    return ClusterAccess(
        server=server.rstrip("/"),
        ca_pem=_data(cluster, "certificate-authority", where),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        tls_server_name=str(cluster.get("tls-server-name", "")),
        token=str(user.get("token", "")),
        token_file=str(user.get("tokenFile", "")),
        client_cert_pem=_data(user, "client-certificate", where),
        client_key_pem=_data(user, "client-key", where),
        plugin=plugin_of(user["exec"]) if user.get("exec") else None,
        namespace=str(ctx.get("namespace", "")),
    )


def plugin_of(spec: Mapping[str, Any]) -> ExecPlugin:
    """An exec plugin as kubeconfig writes it: command, args, env [{name, value}], apiVersion."""
    return ExecPlugin(
        command=str(spec["command"]),
        args=tuple(str(a) for a in spec.get("args") or ()),
        env=tuple((str(e["name"]), str(e["value"])) for e in spec.get("env") or ()),
        api_version=str(spec.get("apiVersion") or "client.authentication.k8s.io/v1"),
    )


def own_access() -> ClusterAccess:
    """Access to the cluster that the operator runs in: KUBECONFIG if set (outside a pod), else the service account."""
    path = os.environ.get("KUBECONFIG", "")
    if path:
        return parse_kubeconfig(
            Path(path).read_text(), where=path, allow_files=True, context=os.environ.get("PDD_CONTEXT", "")
        )
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InvalidInput("KUBECONFIG", "", "is not set and this is not a pod; set it to a kubeconfig of cluster A")
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_pem=(SERVICE_ACCOUNT / "ca.crt").read_text(),
        token_file=str(SERVICE_ACCOUNT / "token"),
        namespace=(SERVICE_ACCOUNT / "namespace").read_text().strip(),
    )


def _named(config: Mapping[str, Any], section: str, name: str, where: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    raise InvalidInput(f"{where}: {section}", name, "has no entry of that name", reason="CredentialsInvalid")


def _data(entry: Mapping[str, Any], key: str, where: str) -> str:
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{where}: {key}-data", inline, "is not base64 of PEM", reason="CredentialsInvalid"
            ) from error
    path = entry.get(key)
    return Path(path).read_text() if path else ""


def _refuse_files(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> None:
    remedy = (
        "points at a file or a program; embed the data (kubectl config view --raw --flatten), or use spec.member.exec"
    )
    for section, keys in (
        (cluster, ("certificate-authority",)),
        (user, ("tokenFile", "client-certificate", "client-key", "exec")),
    ):
        for key in keys:
            if section.get(key):
                raise InvalidInput(f"{where}: {key}", str(section[key])[:80], remedy, reason="CredentialsInvalid")
    if user.get("auth-provider"):
        raise InvalidInput(
            f"{where}: auth-provider",
            "...",
            "is no longer supported by Kubernetes; use a token",
            reason="CredentialsInvalid",
        )
