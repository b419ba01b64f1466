"""`pdd link create`: makes or refreshes the Secret in A that holds the credentials of B."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from pdd.cli.link_kubeconfig import (
    FIELD,
    Json,
    MemberCluster,
    build_secret,
    check_server,
    compose_kubeconfig,
    given_credentials,
    link_example,
    select_member,
)
from pdd.common.errors import Forbidden, InvalidInput, PDDError, Unreachable

FIELD_MANAGER = "pdd-cli"
OUTPUT_VERSION = "pdd.dev/link-create/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCreateOptions:
    """The command line. Empty strings mean: the kubeconfig's own choice."""

    name: str
    namespace: str
    kubeconfig: Path | None
    context: str
    member_kubeconfig: Path
    member_context: str
    member_namespace: str
    member_server: str
    member_tls_server_name: str
    member_service_account: str
    use_given: bool
    token_hours: int
    dry_run: bool
    timeout_s: int
    as_json: bool


@dataclass(frozen=True, slots=True)
class Credentials:
    """What goes into the Secret's user entry. expires: RFC 3339, empty if never."""

    user: Json
    kind: str
    expires: str


def run(options: LinkCreateOptions) -> int:
    """Do it, and say what was done and what comes next. Raises PDDError."""
    kubeconfig = _load_yaml(options.member_kubeconfig)
    base = options.member_kubeconfig.parent

    def read(name: str) -> bytes:
        try:
            return (base / name).read_bytes()
        except OSError as error:
            raise InvalidInput(FIELD, name, f"a file that it names cannot be read: {error.strerror}") from error

    member = select_member(kubeconfig, options.member_context, read)
    server = options.member_server or member.server
    check_server(server, given=bool(options.member_server))
    with _member_api(kubeconfig, member, base) as api:
        identity = _identity(api, options)
        if options.use_given:
            credentials = Credentials(given_credentials(member.user, read), "given credentials", "")
        else:
            credentials = _request_token(api, options)
    text = compose_kubeconfig(
        member,
        credentials.user,
        server=server,
        tls_server_name=options.member_tls_server_name,
        namespace=options.member_namespace,
    )
    secret = build_secret(options.name, options.namespace, text, identity=identity, expires=credentials.expires)
    if options.dry_run:
        print(yaml.safe_dump(secret, sort_keys=False), end="")
        return 0
    created = _apply_secret(secret, options)
    if options.as_json:
        print(json.dumps(_result(options, server, identity, credentials, created)))
    else:
        _say(options, server, identity, credentials, created)
    return 0


def _load_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidInput(FIELD, str(path), f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(FIELD, str(path), "is not YAML; give a kubeconfig file") from error


def _member_api(kubeconfig: Any, member: MemberCluster, base: Path) -> Any:
    try:
        api: Any = config.new_client_from_config_dict(  # type: ignore[no-untyped-call]
            kubeconfig, context=member.context, temp_file_path=None, persist_config=False
        )
    except (config.ConfigException, OSError, ValueError) as error:
        raise InvalidInput(FIELD, str(base), f"cannot be used: {error}") from error
    api.configuration.retries = False
    return api


def _identity(api: Any, options: LinkCreateOptions) -> str:
    """UID of B's kube-system; also proves that B answers and that the namespace is there."""
    core: Any = client.CoreV1Api(api)
    try:
        uid = str(core.read_namespace("kube-system", _request_timeout=options.timeout_s).metadata.uid)
    except (ApiException, urllib3.exceptions.HTTPError) as error:
        raise _explain(error, "cluster B", "get namespaces kube-system") from error
    try:
        core.read_namespace(options.member_namespace, _request_timeout=options.timeout_s)
    except ApiException as error:
        if error.status == 404:
            raise InvalidInput("--member-namespace", options.member_namespace, _install_hint(options)) from error
        raise _explain(error, "cluster B", f"get namespaces {options.member_namespace}") from error
    except urllib3.exceptions.HTTPError as error:
        raise _explain(error, "cluster B", "get namespaces") from error
    return uid


def _install_hint(options: LinkCreateOptions) -> str:
    return (
        "does not exist in cluster B; install what B must grant: helm install pdd-member charts/pdd-member "
        f"--kube-context <B> -n {options.member_namespace} --create-namespace"
    )


def _request_token(api: Any, options: LinkCreateOptions) -> Credentials:
    account = options.member_service_account
    core: Any = client.CoreV1Api(api)
    body = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=options.token_hours * 3600)
    )
    try:
        answer = core.create_namespaced_service_account_token(
            account, options.member_namespace, body, _request_timeout=options.timeout_s
        )
    except ApiException as error:
        if error.status == 404:
            raise InvalidInput(
                "--member-service-account",
                f"{options.member_namespace}/{account}",
                "does not exist in cluster B; install chart pdd-member there (helm install pdd-member "
                f"charts/pdd-member -n {options.member_namespace}), or store this kubeconfig's own credentials "
                "with --use-given-credentials",
            ) from error
        raise _explain(error, "cluster B", f"create serviceaccounts/token of {account}") from error
    except urllib3.exceptions.HTTPError as error:
        raise _explain(error, "cluster B", "create serviceaccounts/token") from error
    expires = answer.status.expiration_timestamp
    return Credentials({"token": answer.status.token}, f"token of ServiceAccount {account}", _rfc3339(expires))


def _rfc3339(when: Any) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ") if hasattr(when, "strftime") else str(when)


def _apply_secret(secret: Json, options: LinkCreateOptions) -> bool:
    """Server-side apply into A. Returns whether it is new."""
    try:
        api: Any = config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=str(options.kubeconfig) if options.kubeconfig else None, context=options.context or None
        )
    except (config.ConfigException, OSError) as error:
        raise InvalidInput(
            "--kubeconfig", str(options.kubeconfig or ""), f"cluster A: no usable kubeconfig: {error}"
        ) from error
    api.configuration.retries = False
    with api:
        core: Any = client.CoreV1Api(api)
        name, namespace = options.name, options.namespace
        try:
            core.read_namespaced_secret(name, namespace, _request_timeout=options.timeout_s)
            created = False
        except ApiException as error:
            if error.status != 404:
                raise _explain(error, "cluster A", f"get secrets in namespace {namespace}") from error
            created = True
        except urllib3.exceptions.HTTPError as error:
            raise _explain(error, "cluster A", "get secrets") from error
        try:
            core.patch_namespaced_secret(
                name,
                namespace,
                secret,
                field_manager=FIELD_MANAGER,
                force=True,
                _content_type="application/apply-patch+yaml",
                _request_timeout=options.timeout_s,
            )
        except ApiException as error:
            if error.status == 404:
                remedy = f"does not exist in cluster A; kubectl create namespace {namespace}"
                raise InvalidInput("--namespace", namespace, remedy) from error
            raise _explain(error, "cluster A", f"patch secrets in namespace {namespace}") from error
        except urllib3.exceptions.HTTPError as error:
            raise _explain(error, "cluster A", "patch secrets") from error
    return created


def _explain(error: Exception, where: str, what: str) -> PDDError:
    if isinstance(error, ApiException):
        if error.status == 401:
            return Forbidden(
                f"{where} does not accept these credentials; renew the kubeconfig", reason="CredentialsInvalid"
            )
        if error.status == 403:
            return Forbidden(f"{where} does not let you {what}; ask its administrator for that right")
        return Unreachable(f"{where} answers {error.status} {error.reason} to: {what}")
    why = getattr(error, "reason", None) or error
    return Unreachable(f"{where} does not answer ({why}); check the server's address, the network and a VPN")


def _result(options: LinkCreateOptions, server: str, identity: str, credentials: Credentials, created: bool) -> Json:
    return {
        "apiVersion": OUTPUT_VERSION,
        "secret": {"name": options.name, "namespace": options.namespace, "key": "kubeconfig", "created": created},
        "member": {
            "server": server,
            "namespace": options.member_namespace,
            "kubeSystemUID": identity,
            "credentials": credentials.kind,
            "expires": credentials.expires or None,
        },
    }


def _say(options: LinkCreateOptions, server: str, identity: str, credentials: Credentials, created: bool) -> None:
    until = f", valid until {credentials.expires}" if credentials.expires else ", which does not expire by itself"
    print(f"cluster B  {server}  identity {identity}", file=sys.stderr)
    print(f"uses       {credentials.kind}{until}", file=sys.stderr)
    print(f"{'created' if created else 'refreshed'}  Secret {options.namespace}/{options.name} in cluster A")
    if credentials.expires:
        print("refresh    run the same command again before it expires; the operator takes the new one at once")
    print("next       kubectl apply -f - <<'EOF'      (put in your line's figures)")
    print(link_example(options.name, options.namespace, options.member_namespace, identity) + "EOF")
