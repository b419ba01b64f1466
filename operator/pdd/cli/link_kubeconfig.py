"""Pure parts of `pdd link create`: from an administrator's kubeconfig of B to the Secret that is read in A."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from pdd.common.errors import InvalidInput

Json = dict[str, Any]
ReadBytes = Callable[[str], bytes]
FIELD = "--member-kubeconfig"


@dataclass(frozen=True, slots=True)
class MemberCluster:
    """What a kubeconfig says about B: its API server, how to trust it, and the user's entry as written."""

    server: str
    ca_data: str
    insecure: bool
    tls_server_name: str
    user: Mapping[str, Any]
    context: str


def select_member(kubeconfig: Any, context: str, read: ReadBytes) -> MemberCluster:
    """The cluster and user of a context (empty: the current one). read: bytes of a file that the kubeconfig names.

    Raises InvalidInput that names the missing part.
    """
    if not isinstance(kubeconfig, dict):
        raise InvalidInput(FIELD, kubeconfig, "is not a kubeconfig (an object with clusters, users, contexts)")
    name = context or str(kubeconfig.get("current-context") or "")
    if not name:
        raise InvalidInput(FIELD, "", f"has no current context; give --member-context, one of {_names(kubeconfig)}")
    chosen = _entry(kubeconfig, "contexts", name, f"--member-context: choose one of {_names(kubeconfig)}")
    cluster = _entry(kubeconfig, "clusters", str(chosen.get("cluster", "")), "mend the kubeconfig")
    user = _entry(kubeconfig, "users", str(chosen.get("user", "")), "mend the kubeconfig")
    ca_data = str(cluster.get("certificate-authority-data", ""))
    if not ca_data and cluster.get("certificate-authority"):
        ca_data = base64.b64encode(read(str(cluster["certificate-authority"]))).decode()
    return MemberCluster(
        server=str(cluster.get("server", "")),
        ca_data=ca_data,
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        tls_server_name=str(cluster.get("tls-server-name", "")),
        user=user,
        context=name,
    )


def check_server(server: str, *, given: bool) -> None:
    """Refuse an API server that pods in A cannot reach. given: the user named it with --member-server."""
    parts = urlsplit(server)
    if parts.scheme != "https" or not parts.hostname:
        raise InvalidInput("--member-server", server, "give the URL of B's API server, https://host:port")
    if not given and is_loopback(parts.hostname):
        raise InvalidInput(
            "--member-server",
            server,
            "this address is this machine only; give the URL that pods of cluster A can reach "
            "(kind: https://NAME-control-plane:6443 or the node's address)",
        )


def is_loopback(host: str) -> bool:
    """Whether a host means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def given_credentials(user: Mapping[str, Any], read: ReadBytes) -> Json:
    """The user's own credentials with files put inline. Raises InvalidInput for a plugin, which A has not."""
    if user.get("exec") or user.get("auth-provider"):
        raise InvalidInput(
            FIELD,
            "exec",
            "its user runs a program, which the operator does not have; install chart pdd-member in B and leave "
            "--use-given-credentials out, or use spec.member.exec of the PDDLink",
        )
    inline: Json = {}
    for key in ("client-certificate", "client-key"):
        data = user.get(f"{key}-data")
        if not data and user.get(key):
            data = base64.b64encode(read(str(user[key]))).decode()
        if data:
            inline[f"{key}-data"] = data
    token = user.get("token")
    if not token and user.get("tokenFile"):
        token = read(str(user["tokenFile"])).decode().strip()
    if token:
        inline["token"] = token
    if not inline:
        raise InvalidInput(FIELD, "users", "its user has neither a token nor a client certificate")
    return inline


def compose_kubeconfig(
    cluster: MemberCluster, user: Mapping[str, Any], *, server: str, tls_server_name: str, namespace: str
) -> str:
    """A self-contained kubeconfig with one context, as YAML."""
    entry: Json = {"server": server}
    if cluster.ca_data:
        entry["certificate-authority-data"] = cluster.ca_data
    if cluster.insecure:
        entry["insecure-skip-tls-verify"] = True
    if tls_server_name or cluster.tls_server_name:
        entry["tls-server-name"] = tls_server_name or cluster.tls_server_name
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "member", "cluster": entry}],
            "users": [{"name": "pdd", "user": dict(user)}],
            "contexts": [{"name": "member", "context": {"cluster": "member", "user": "pdd", "namespace": namespace}}],
            "current-context": "member",
        },
        sort_keys=False,
    )


def build_secret(name: str, namespace: str, kubeconfig: str, *, identity: str, expires: str) -> Json:
    """The Secret in A. identity: UID of B's kube-system; expires: RFC 3339, empty if the credentials do not expire."""
    annotations = {"pdd.dev/member-kube-system-uid": identity}
    if expires:
        annotations["pdd.dev/credentials-expire"] = expires
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "pdd", "pdd.dev/member-credentials": "true"},
            "annotations": annotations,
        },
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }


def link_example(name: str, namespace: str, member_namespace: str, identity: str) -> str:
    """A PDDLink that uses the Secret; only the line's figures are left to change."""
    return f"""apiVersion: pdd.dev/v1alpha1
kind: PDDLink
metadata:
  name: {name}
  namespace: {namespace}
spec:
  member:
    kubeconfigSecretRef: {{name: {name}}}
    namespace: {member_namespace}
    identity: {{kubeSystemUID: {identity}}}
  line: {{capacityMbps: 10000, rttMs: 20}}
"""


def _entry(kubeconfig: Mapping[str, Any], section: str, name: str, remedy: str) -> Json:
    singular = section[:-1]
    for item in kubeconfig.get(section) or ():
        if isinstance(item, dict) and item.get("name") == name:
            found = item.get(singular)
            return found if isinstance(found, dict) else {}
    raise InvalidInput(f"{FIELD}: {section}", name, f"there is no such entry; {remedy}")


def _names(kubeconfig: Mapping[str, Any]) -> str:
    return ", ".join(str(item.get("name")) for item in kubeconfig.get("contexts") or ()) or "none"
