"""The two custom resources, group pdd.dev, version v1alpha1.

Frozen models. A person's file is read strictly (`from_object`); what a cluster returns is read with unknown keys
ignored (`from_cluster`), so that an older operator can read a newer object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from pdd.api.base import Model
from pdd.api.conditions import Condition, ConditionStatus, ConditionType, Reason, get_condition, is_true, set_condition
from pdd.api.deployment import PDDDeploymentSpec, Role, RoleSpec
from pdd.api.linkspec import PDDLinkSpec, Transport
from pdd.api.status import PDDDeploymentStatus, PDDLinkStatus
from pdd.common.errors import InvalidInput

GROUP = "pdd.dev"
VERSION = "v1alpha1"
API_VERSION: Literal["pdd.dev/v1alpha1"] = "pdd.dev/v1alpha1"


class Resource(Model):
    """What both kinds share. `metadata` stays as the API server gave it."""

    metadata: dict[str, Any] = Field(default={})

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace") or "default")

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def generation(self) -> int:
        return int(self.metadata.get("generation", 0))

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.get("deletionTimestamp"))

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> Self:
        """Read what a person wrote. Raises InvalidInput that names the first wrong field;
        `pdd.api.validate` names all of them."""
        return cls._read(obj, "forbid")

    @classmethod
    def from_cluster(cls, obj: Mapping[str, Any]) -> Self:
        """Read what an API server returned; unknown keys are ignored. Raises InvalidInput."""
        return cls._read(obj, "ignore")

    @classmethod
    def _read(cls, obj: Mapping[str, Any], extra: Literal["forbid", "ignore"]) -> Self:
        try:
            return cls.model_validate(dict(obj), extra=extra)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InvalidInput(field, first.get("input"), first["msg"], reason=Reason.INVALID_SPEC.value) from error

    def to_object(self) -> dict[str, Any]:
        """As JSON with camelCase keys; None is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class PDDDeployment(Resource):
    api_version: Literal["pdd.dev/v1alpha1"] = API_VERSION
    kind: Literal["PDDDeployment"] = "PDDDeployment"
    spec: PDDDeploymentSpec
    status: PDDDeploymentStatus | None = None

    def role(self, role: Role) -> RoleSpec:
        """Spec of one role."""
        roles = self.spec.roles
        return {
            Role.PREFILL: roles.prefill,
            Role.RELAY_DECODE: roles.relay_decode,
            Role.MAIN_DECODE: roles.main_decode,
        }[role]

    @property
    def link_key(self) -> tuple[str, str]:
        """(namespace, name) of the PDDLink."""
        return self.spec.link_ref.namespace or self.namespace, self.spec.link_ref.name


class PDDLink(Resource):
    api_version: Literal["pdd.dev/v1alpha1"] = API_VERSION
    kind: Literal["PDDLink"] = "PDDLink"
    spec: PDDLinkSpec
    status: PDDLinkStatus | None = None

    def allows(self, namespace: str) -> bool:
        """Whether a PDDDeployment of that namespace may use this link."""
        allowed = self.spec.allowed_namespaces
        return namespace == self.namespace or namespace in allowed or "*" in allowed


PLURALS = {"PDDDeployment": "pdddeployments", "PDDLink": "pddlinks"}

__all__ = [
    "API_VERSION",
    "GROUP",
    "PLURALS",
    "VERSION",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "PDDDeployment",
    "PDDDeploymentSpec",
    "PDDDeploymentStatus",
    "PDDLink",
    "PDDLinkSpec",
    "PDDLinkStatus",
    "Reason",
    "Role",
    "RoleSpec",
    "Transport",
    "get_condition",
    "is_true",
    "set_condition",
]
