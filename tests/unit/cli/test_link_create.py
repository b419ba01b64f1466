"""`pdd link create` against two small API servers over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdd.cli.link_create import LinkCreateOptions, run
from pdd.common.errors import Forbidden, InvalidInput, Unreachable


@dataclass
class FakeAPI:
    """Answers by (method, path); records what was sent. An answer is (status, body)."""

    answers: dict[tuple[str, str], tuple[int, dict[str, Any]]]
    seen: list[tuple[str, str, str, Any]] = field(default_factory=list)
    url: str = ""


def serve(api: FakeAPI) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path, _, query = self.path.partition("?")
            api.seen.append((self.command, path, query, body))
            missing = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}
            status, answer = api.answers.get((self.command, path), (404, missing))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    return server


SECRET = "/api/v1/namespaces/links/secrets/site-b"
TOKEN = "/api/v1/namespaces/pdd/serviceaccounts/pdd-member/token"


@pytest.fixture
def clusters() -> Iterator[tuple[FakeAPI, FakeAPI]]:
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    token = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["b"]},
        "status": {"token": "short-lived", "expirationTimestamp": "2027-01-01T00:00:00Z"},
    }
    b = FakeAPI(
        {
            ("GET", "/api/v1/namespaces/kube-system"): (
                200,
                {**namespace, "metadata": {"name": "kube-system", "uid": "u-b"}},
            ),
            ("GET", "/api/v1/namespaces/pdd"): (200, {**namespace, "metadata": {"name": "pdd"}}),
            ("POST", TOKEN): (201, token),
        }
    )
    a = FakeAPI({("PATCH", SECRET): (200, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "site-b"}})})
    servers = [serve(a), serve(b)]
    yield a, b
    for server in servers:
        server.shutdown()
        server.server_close()


def write_kubeconfig(path: Path, url: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "admin"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def options(tmp_path: Path, a: FakeAPI, b: FakeAPI, **changes: Any) -> LinkCreateOptions:
    values: dict[str, Any] = {
        "name": "site-b",
        "namespace": "links",
        "kubeconfig": write_kubeconfig(tmp_path / "a", a.url),
        "context": "",
        "member_kubeconfig": write_kubeconfig(tmp_path / "b", b.url),
        "member_context": "",
        "member_namespace": "pdd",
        "member_server": "https://node-b:6443",
        "member_tls_server_name": "",
        "member_service_account": "pdd-member",
        "use_given": False,
        "token_hours": 24,
        "dry_run": False,
        "timeout_s": 5,
        "as_json": False,
    }
    return LinkCreateOptions(**{**values, **changes})


Clusters = tuple[FakeAPI, FakeAPI]


def sent_kubeconfig(a: FakeAPI) -> dict[str, Any]:
    _, _, query, secret = next(entry for entry in a.seen if entry[0] == "PATCH")
    assert "fieldManager=pdd-cli" in query and "force=true" in query.lower()
    return yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))


def test_a_token_of_the_members_account_goes_into_a_secret_of_a(
    tmp_path: Path, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = clusters
    assert run(options(tmp_path, a, b)) == 0
    config = sent_kubeconfig(a)
    assert config["users"][0]["user"] == {"token": "short-lived"}
    assert config["clusters"][0]["cluster"]["server"] == "https://node-b:6443"
    assert config["contexts"][0]["context"]["namespace"] == "pdd"
    asked = next(entry[3] for entry in b.seen if entry[1] == TOKEN)
    assert asked["spec"]["expirationSeconds"] == 24 * 3600
    out = capsys.readouterr().out
    assert "created  Secret links/site-b" in out and "kubectl apply -f -" in out and "kubeSystemUID: u-b" in out
    assert "short-lived" not in out and "admin" not in out


def test_the_second_time_it_is_a_refresh_and_json_says_when_it_ends(
    tmp_path: Path, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = clusters
    a.answers["GET", SECRET] = (200, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "site-b"}})
    assert run(options(tmp_path, a, b, as_json=True)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["secret"]["created"] is False
    assert result["member"]["expires"] == "2027-01-01T00:00:00Z" and result["member"]["kubeSystemUID"] == "u-b"


def test_given_credentials_are_stored_only_when_asked_for(tmp_path: Path, clusters: Clusters) -> None:
    a, b = clusters
    assert run(options(tmp_path, a, b, use_given=True)) == 0
    assert sent_kubeconfig(a)["users"][0]["user"] == {"token": "admin"}
    assert TOKEN not in [entry[1] for entry in b.seen]


def test_a_dry_run_writes_nothing(tmp_path: Path, clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = clusters
    assert run(options(tmp_path, a, b, dry_run=True)) == 0
    assert a.seen == [] and yaml.safe_load(capsys.readouterr().out)["kind"] == "Secret"


@pytest.mark.parametrize(
    ("site", "call", "status", "error", "words"),
    [
        ("b", ("GET", "/api/v1/namespaces/kube-system"), 401, Forbidden, "renew the kubeconfig"),
        ("b", ("GET", "/api/v1/namespaces/kube-system"), 403, Forbidden, "get namespaces kube-system"),
        ("b", ("GET", "/api/v1/namespaces/pdd"), 404, InvalidInput, "helm install pdd-member"),
        ("b", ("POST", TOKEN), 404, InvalidInput, "--use-given-credentials"),
        ("b", ("POST", TOKEN), 403, Forbidden, "serviceaccounts/token"),
        ("b", ("POST", TOKEN), 500, Unreachable, "answers 500"),
        ("a", ("GET", SECRET), 403, Forbidden, "get secrets in namespace links"),
        ("a", ("PATCH", SECRET), 404, InvalidInput, "kubectl create namespace links"),
    ],
)
def test_a_refusal_says_who_must_do_what(
    tmp_path: Path,
    clusters: Clusters,
    site: str,
    call: tuple[str, str],
    status: int,
    error: type[Exception],
    words: str,
) -> None:
    a, b = clusters
    {"a": a, "b": b}[site].answers[call] = (status, {"kind": "Status", "code": status})
    with pytest.raises(error, match=words):
        run(options(tmp_path, a, b))


def test_a_cluster_that_does_not_answer_is_unreachable(tmp_path: Path, clusters: Clusters) -> None:
    a, b = clusters
    dead = options(tmp_path, a, b, member_kubeconfig=write_kubeconfig(tmp_path / "dead", "http://127.0.0.1:9"))
    with pytest.raises(Unreachable, match="cluster B does not answer"):
        run(dead)


def test_the_kubeconfigs_loopback_server_is_refused_before_anything_is_asked(
    tmp_path: Path, clusters: Clusters
) -> None:
    a, b = clusters
    with pytest.raises(InvalidInput, match="--member-server"):
        run(options(tmp_path, a, b, member_server=""))
    assert a.seen == b.seen == []
