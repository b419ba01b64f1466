"""`pdd status`: one look at a deployment in a cluster, or at a router by its URL."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

from pdd.api.v1alpha1 import GROUP, PLURALS, VERSION, PDDDeployment
from pdd.cli.console import Console
from pdd.cli.runner.http import get_json
from pdd.cli.status_view import deployment_lines, is_ready, router_lines
from pdd.common.errors import Forbidden, InvalidInput, PDDError, TimedOut, Unreachable

_TIMEOUT_S = 10


def status_of_router(url: str, console: Console, *, as_json: bool) -> int:
    """Print what the router at `url` knows. Raises Unreachable."""
    base = url.rstrip("/").removesuffix("/v1")
    load = asyncio.run(get_json(f"{base}/internal/load"))
    console.result(json.dumps(load, indent=2) if as_json else "\n".join(router_lines(base, load)))
    return 0


def status_of_deployments(
    console: Console,
    *,
    name: str = "",
    namespace: str = "",
    context: str | None = None,
    kubeconfig: str | None = None,
    wait_s: float = 0.0,
    as_json: bool = False,
) -> int:
    """Print one PDDDeployment, or all of the namespace. A's kubeconfig is enough: B's side comes from the status.

    wait_s > 0: wait until each is Ready. Raises Unreachable, Forbidden, InvalidInput (no such object), TimedOut.
    """
    deadline = time.monotonic() + wait_s
    while True:
        found = fetch_deployments(name, namespace, context, kubeconfig)
        if not wait_s or (found and all(is_ready(deployment) for deployment in found)):
            break
        if time.monotonic() >= deadline:
            waiting = ", ".join(d.name for d in found if not is_ready(d)) or "no PDDDeployment"
            raise TimedOut(f"not Ready after {wait_s:g} s: {waiting}")
        time.sleep(1.0)
    if as_json:
        items = [deployment.to_object() for deployment in found]
        console.result(json.dumps(items[0] if name else {"items": items}, indent=2))
        return 0
    if not found:
        console.result("no PDDDeployment here; apply one: kubectl apply -f crds/samples/demo.yaml")
    now = datetime.now(UTC)
    for index, deployment in enumerate(found):
        console.result("\n".join(([""] if index else []) + deployment_lines(deployment, now)))
    return 0


def fetch_deployments(name: str, namespace: str, context: str | None, kubeconfig: str | None) -> list[PDDDeployment]:
    """The PDDDeployments of a namespace (default: the context's), or the one called `name`."""
    import urllib3
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException

    try:
        api: Any = config.new_client_from_config(config_file=kubeconfig, context=context)  # type: ignore[no-untyped-call]
        if not namespace:
            contexts, active = config.list_kube_config_contexts(config_file=kubeconfig)  # type: ignore[no-untyped-call]
            chosen = next((c for c in contexts if c["name"] == context), active)
            namespace = chosen["context"].get("namespace") or "default"
    except (config.ConfigException, OSError) as error:
        raise Unreachable(
            f"no usable kubeconfig ({error}); give --kubeconfig and --context, or --url for a router"
        ) from error
    api.configuration.retries = False
    objects: Any = client.CustomObjectsApi(api)
    where = (GROUP, VERSION, namespace, PLURALS["PDDDeployment"])
    try:
        if name:
            items = [objects.get_namespaced_custom_object(*where, name, _request_timeout=_TIMEOUT_S)]
        else:
            items = objects.list_namespaced_custom_object(*where, _request_timeout=_TIMEOUT_S)["items"]
    except ApiException as error:
        raise _explained(error, name, namespace) from error
    except urllib3.exceptions.HTTPError as error:
        raise Unreachable(f"the API server does not answer: {error}") from error
    finally:
        api.close()
    return [PDDDeployment.from_cluster(item) for item in items]


def _explained(error: Any, name: str, namespace: str) -> PDDError:
    if error.status in (401, 403):
        return Forbidden(f"you may not read pdddeployments in namespace {namespace} ({error.status} {error.reason})")
    if error.status == 404 and name:
        return InvalidInput(
            "NAME", name, f"no such PDDDeployment in namespace {namespace} (or the CRDs are not installed)"
        )
    return Unreachable(f"the API server answers {error.status} {error.reason}")
