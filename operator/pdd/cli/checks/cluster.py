"""Checks of a cluster A, with the kubeconfig at hand: reached, our CRDs there, a sample accepted, rights enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdd.cli.checks.model import Check, Verdict

_TIMEOUT_S = 10
_RIGHTS = (("pdd.dev", "pdddeployments", "create"), ("pdd.dev", "pddlinks", "create"), ("", "secrets", "create"))
_CRDS = ("pdddeployments.pdd.dev", "pddlinks.pdd.dev")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the API server answered. `error`: why it could not be asked; then the rest says nothing."""

    error: str = ""
    version: str = ""
    missing_crds: tuple[str, ...] = ()
    dry_run_error: str = ""
    missing_rights: tuple[str, ...] = ()


def _reached(facts: ClusterFacts) -> tuple[Verdict, str]:
    return (Verdict.FAILED, facts.error) if facts.error else (Verdict.OK, f"Kubernetes {facts.version}")


def _crds(facts: ClusterFacts) -> tuple[Verdict, str]:
    if facts.error:
        return Verdict.FAILED, "not known: the cluster does not answer"
    if facts.missing_crds:
        return Verdict.FAILED, f"missing: {', '.join(facts.missing_crds)}"
    return Verdict.OK, "both are there"


def _dry_run(facts: ClusterFacts) -> tuple[Verdict, str]:
    if facts.error or facts.missing_crds:
        return Verdict.FAILED, "not tried: the cluster or its CRDs are missing"
    return (Verdict.FAILED, facts.dry_run_error) if facts.dry_run_error else (Verdict.OK, "a PDDDeployment is accepted")


def _rights(facts: ClusterFacts) -> tuple[Verdict, str]:
    if facts.error:
        return Verdict.FAILED, "not known: the cluster does not answer"
    if facts.missing_rights:
        return Verdict.FAILED, f"missing: {', '.join(facts.missing_rights)}"
    return Verdict.OK, "enough to create what PDD needs"


CLUSTER_CHECKS: tuple[Check[ClusterFacts], ...] = (
    Check("cluster.reached", "API server", _reached, "nothing works without it", "kubectl --context CONTEXT version"),
    Check(
        "cluster.crds", "CRDs", _crds, "PDDDeployment and PDDLink are unknown there",
        "helm install pdd charts/pdd-operator",
    ),
    Check("cluster.dry-run", "admission", _dry_run, "a sample sent as a dry run was refused", "read the message above"),
    Check(
        "cluster.rights", "your rights", _rights, "you could not apply the samples",
        "ask for these verbs on these resources",
    ),
)  # fmt: skip


def gather_cluster_facts(context: str | None, kubeconfig: str | None, namespace: str) -> ClusterFacts:
    """Ask the API server, each call within 10 s. Failures become facts."""
    import urllib3
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException

    try:
        api: Any = config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context
        )
    except (config.ConfigException, OSError) as error:
        return ClusterFacts(error=f"no usable kubeconfig: {error}")
    api.configuration.retries = False
    try:
        version = str(client.VersionApi(api).get_code(_request_timeout=_TIMEOUT_S).git_version)
        missing_crds = tuple(name for name in _CRDS if not _has_crd(client, api, name))
        return ClusterFacts(
            version=version,
            missing_crds=missing_crds,
            dry_run_error="" if missing_crds else _dry_run_error(client, api, namespace),
            missing_rights=tuple(_missing_rights(client, api, namespace)),
        )
    except ApiException as error:
        return ClusterFacts(error=f"the API server answers {error.status} {error.reason}")
    except urllib3.exceptions.HTTPError as error:
        return ClusterFacts(error=f"the API server does not answer: {error}")
    finally:
        api.close()


def _has_crd(client: Any, api: Any, name: str) -> bool:
    from kubernetes.client.exceptions import ApiException

    try:
        client.ApiextensionsV1Api(api).read_custom_resource_definition(name, _request_timeout=_TIMEOUT_S)
    except ApiException as error:
        if error.status == 404:
            return False
        if error.status != 403:  # no right to read CRDs is common; then the API group tells
            raise
        plural, _, group = name.partition(".")
        found = client.CustomObjectsApi(api).get_api_resources(group, "v1alpha1", _request_timeout=_TIMEOUT_S)
        return any(resource.name == plural for resource in found.resources)
    return True


def _dry_run_error(client: Any, api: Any, namespace: str) -> str:
    from kubernetes.client.exceptions import ApiException

    sample = {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDDeployment",
        "metadata": {"generateName": "pdd-doctor-"},
        "spec": {"linkRef": {"name": "pdd-doctor"}, "model": {"name": "tiny"}},
    }
    try:
        client.CustomObjectsApi(api).create_namespaced_custom_object(
            "pdd.dev", "v1alpha1", namespace, "pdddeployments", sample, dry_run="All", _request_timeout=_TIMEOUT_S
        )
    except ApiException as error:
        return f"{error.status} {error.reason}: {str(error.body)[:200]}"
    return ""


def _missing_rights(client: Any, api: Any, namespace: str) -> list[str]:
    missing = []
    for group, resource, verb in _RIGHTS:
        attributes = client.V1ResourceAttributes(namespace=namespace, group=group, resource=resource, verb=verb)
        review = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        answer = client.AuthorizationV1Api(api).create_self_subject_access_review(review, _request_timeout=_TIMEOUT_S)
        if not answer.status.allowed:
            missing.append(f"{verb} {resource}{'.' + group if group else ''} in {namespace}")
    return missing
