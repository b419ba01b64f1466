"""Whether a PDDDeployment can be carried out, and how many RLD engines it has now. Pure."""

from __future__ import annotations

from pdd.api.checks import Severity, check_deployment
from pdd.api.deployment import Role
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.controller.kube.resources import Object
from pdd.controller.verdict import Problem


def plan_problem(deployment: PDDDeployment, link: PDDLink | None) -> Problem | None:
    """The first error of the API's checks; None if the spec makes sense. link None: the named one does not exist."""
    for finding in check_deployment(deployment, link):
        if finding.severity is Severity.ERROR:
            return Problem(finding.reason, finding.message)
    return None


def relay_replicas(deployment: PDDDeployment, live: Object | None, target: int | None) -> int:
    """How many RLD engines to ask for. Without autoscaling the spec's number.

    With it the autoscaler's word; while that is silent (a fresh operator) what runs now, so that silence never scales.
    """
    spec = deployment.spec.roles.relay_decode
    scaling = spec.autoscaling
    if scaling is None:
        return deployment.role(Role.RELAY_DECODE).replicas
    if target is not None:
        wanted = target
    elif live is not None:
        wanted = int((live.get("spec") or {}).get("replicas", spec.replicas))
    else:
        wanted = spec.replicas
    return max(scaling.min_replicas, min(scaling.max_replicas, wanted))
