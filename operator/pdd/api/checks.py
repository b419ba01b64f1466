"""Checks of sense that a schema cannot make: does the model fit, is the engine built, may the link be used.

Pure; used by `pdd validate` and by the controller (condition Planned). Each finding says what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pdd.api.accelerators import memory_mib, nearest_types
from pdd.api.conditions import Reason
from pdd.api.config import EngineType
from pdd.api.deployment import ModelSpec, Role
from pdd.api.engines import REFERENCE_KV
from pdd.api.linkspec import KVCapture
from pdd.api.v1alpha1 import PDDDeployment, PDDLink, Transport

MIB = 1024 * 1024
_SUFFIX: dict[str, int] = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SUFFIX |= {f"{letter}i": int(1024**power) for power, letter in enumerate("KMGTP", start=1)}


class Severity(StrEnum):
    ERROR = "Error"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong. field: path of the culprit; remedy: what to change."""

    reason: Reason
    field: str
    value: str
    problem: str
    remedy: str
    severity: Severity = Severity.ERROR

    @property
    def message(self) -> str:
        """One line for a condition."""
        return f"{self.field}: {self.problem}; {self.remedy}"


def check_deployment(deployment: PDDDeployment, link: PDDLink | None) -> tuple[Finding, ...]:
    """Everything that is wrong with a deployment on its link. link None: the named one does not exist.

    The first error decides the reason of condition Planned.
    """
    return (*check_link(deployment, link), *check_engine(deployment, link), *check_memory(deployment))


def check_link(deployment: PDDDeployment, link: PDDLink | None) -> tuple[Finding, ...]:
    """The link exists, and allows the deployment's namespace."""
    namespace, name = deployment.link_key
    if link is None:
        return (
            Finding(
                Reason.LINK_NOT_FOUND,
                "spec.linkRef.name",
                name,
                f"there is no PDDLink {name} in namespace {namespace}",
                "create it, or name one that `kubectl get pddlink -A` shows",
            ),
        )
    if link.allows(deployment.namespace):
        return ()
    return (
        Finding(
            Reason.NAMESPACE_NOT_ALLOWED,
            "spec.linkRef.namespace",
            namespace,
            f"PDDLink {namespace}/{name} does not allow namespace {deployment.namespace}",
            f"ask its owner to add {deployment.namespace} to spec.allowedNamespaces of the PDDLink",
        ),
    )


def check_link_spec(link: PDDLink) -> tuple[Finding, ...]:
    """The transport is built."""
    if link.spec.transport is Transport.GATEWAY:
        return ()
    return (
        Finding(
            Reason.TRANSPORT_NOT_BUILT,
            "spec.transport",
            link.spec.transport.value,
            "this version cannot set up engines that reach each other without the gateway yet",
            "use Gateway",
        ),
    )


def check_engine(deployment: PDDDeployment, link: PDDLink | None) -> tuple[Finding, ...]:
    """The engine type is built, and can be joined to the link as the link asks."""
    type_ = deployment.spec.engine.type
    if type_ is EngineType.SGLANG:
        return (
            Finding(
                Reason.ENGINE_NOT_BUILT,
                "spec.engine.type",
                type_.value,
                "this version cannot drive sglang yet",
                "use reference or vllm",
            ),
        )
    found = []
    captures = link is not None and link.spec.transport is Transport.GATEWAY
    if (
        link is not None
        and captures
        and type_ is not EngineType.REFERENCE
        and link.spec.endpoint_or_default.capture is KVCapture.CONNECT
    ):
        found.append(
            Finding(
                Reason.INVALID_SPEC,
                "spec.engine.type",
                type_.value,
                f"PDDLink {link.name} has spec.endpoint.capture Connect, and {type_.value} cannot dial through a proxy",
                "set spec.endpoint.capture: Redirect in the PDDLink",
            )
        )
    return tuple(found)


def weight_mib(model: ModelSpec) -> int | None:
    """Size of all weights in MiB, rounded up: weightMiB, else parametersMillions x bitsPerWeight; None if unknown."""
    if model.weight_mib is not None:
        return model.weight_mib
    if model.parameters_millions is None:
        return None
    return -(-model.parameters_millions * 1_000_000 * model.bits_per_weight // (8 * MIB))


def check_memory(deployment: PDDDeployment) -> tuple[Finding, ...]:
    """Weights and the KV of one full context fit into the memory of each role's engine."""
    found: list[Finding] = []
    for role in Role:
        finding = _check_role_memory(deployment, role)
        if finding is not None:
            found.append(finding)
    return tuple(found)


def _check_role_memory(deployment: PDDDeployment, role: Role) -> Finding | None:
    spec, model = deployment.role(role), deployment.spec.model
    weights = weight_mib(model)
    accelerator = spec.accelerator
    if accelerator.count == 0:
        return _check_cpu_memory(role, weights, spec.resources.limits.get("memory"))
    where = f"spec.roles.{role.value}.accelerator"
    one = memory_mib(accelerator.type, accelerator.memory_mib)
    if one is None:
        near = nearest_types(accelerator.type)
        hint = f" (near: {', '.join(near)})" if near else ""
        return Finding(
            Reason.INVALID_SPEC,
            f"{where}.type",
            accelerator.type,
            f"its memory is not known, so nothing checks that the model fits{hint}",
            f"give {where}.memoryMiB",
            Severity.WARNING,
        )
    if weights is None:
        return None
    percent = 100
    if deployment.spec.engine.type is EngineType.VLLM:
        percent = spec.engine.gpu_memory_percent or deployment.spec.engine.gpu_memory_percent
    usable = one * percent // 100
    have = usable * accelerator.count
    what = f"{accelerator.count} x {accelerator.type or accelerator.resource_name} with {_gib(usable)} usable each"
    if weights > have:
        return Finding(
            Reason.MODEL_TOO_LARGE,
            f"{where}.count",
            str(accelerator.count),
            f"the weights of {model.name} need {_gib(weights)}, and {what} have {_gib(have)}",
            f"set {where}.count to at least {-(-weights // usable)}, take accelerators with more memory, "
            "or a quantised model (spec.model.bitsPerWeight)",
        )
    per_token = model.kv.bytes_per_token or REFERENCE_KV.bytes_per_token
    context = -(-(per_token * model.max_context_tokens + model.kv.state_bytes) // MIB)
    spare = have - weights
    if context > spare:
        return Finding(
            Reason.CONTEXT_TOO_LARGE,
            "spec.model.maxContextTokens",
            str(model.max_context_tokens),
            f"the KV of one full context needs {_gib(context)}, and {what} leave {_gib(spare)} beside the weights",
            f"lower spec.model.maxContextTokens to at most {spare * MIB // per_token}, or raise {where}.count",
        )
    return None


def _check_cpu_memory(role: Role, weights: int | None, limit: int | str | None) -> Finding | None:
    if weights is None or limit is None:
        return None
    have = parse_quantity(limit) // MIB
    if weights <= have:
        return None
    field = f"spec.roles.{role.value}.resources.limits.memory"
    return Finding(
        Reason.MODEL_TOO_LARGE,
        field,
        str(limit),
        f"the weights need {_gib(weights)}, and the container may take {_gib(have)}",
        f"raise {field} to more than {weights}Mi, or give the role accelerators",
    )


def parse_quantity(quantity: int | str) -> int:
    """A Kubernetes quantity as a whole number, rounded down (`16Gi` -> bytes). Raises ValueError."""
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?(m|[kMGTP]i?|Ki)?", str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity")
    whole, fraction, suffix = match[1], match[2] or "", match[3] or ""
    digits, scale = int(whole + fraction), int(10 ** len(fraction))
    if suffix == "m":
        return digits // (scale * 1000)
    return digits * _SUFFIX[suffix] // scale


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
