"""Small types that both custom resources share: names, quantities, environment, resources, pod overrides.

Every string, list and map has an upper bound, so that the cost of the CEL rules stays within the API server's budget.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from pdd.api.base import Model

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
"""Name of a Kubernetes object."""
Label = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
"""A DNS label: a namespace, a Service."""
ShortText = Annotated[str, Field(max_length=253)]
LongText = Annotated[str, Field(max_length=4096)]
KeyText = Annotated[str, Field(max_length=317)]
Quantity = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1, max_length=32, pattern=QUANTITY)],
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": 32}),
]
"""A Kubernetes quantity: `4`, `500m`, `16Gi`."""
FreeObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
"""An object of somebody else's schema, passed on as it is."""
CIDR = Annotated[str, Field(max_length=43, pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Port = Annotated[int, Field(ge=1, le=65535)]

LIST_MAP_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class SecretKeyRef(Model):
    """One key of a Secret in the same namespace."""

    name: Name
    key: str = Field(min_length=1, max_length=253)


class EnvSource(Model):
    """Where the value comes from."""

    secret_key_ref: SecretKeyRef


class EnvVar(Model):
    """One environment variable: a value, or a key of a Secret."""

    name: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    value: LongText = ""
    value_from: EnvSource | None = None


EnvList = Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=LIST_MAP_BY_NAME)]
ArgList = Annotated[tuple[LongText, ...], Field(max_length=64)]
ResourceMap = Annotated[dict[KeyText, Quantity], Field(max_length=32)]
TextMap = Annotated[dict[KeyText, LongText], Field(max_length=64)]


class Resources(Model):
    """Requests and limits of the main container, as in a pod."""

    requests: ResourceMap = Field(default={}, description="what the scheduler sets aside")
    limits: ResourceMap = Field(default={}, description="what the container may use at most")


class PodMetadata(Model):
    """Labels and annotations that are added."""

    labels: TextMap = Field(default={})
    annotations: TextMap = Field(default={})


class PodTemplate(Model):
    """What is merged over the pod that the operator makes: labels, annotations, and any field of a PodSpec.

    Lists of named things (containers, volumes, env) are merged by name; everything else replaces.
    """

    metadata: PodMetadata = PodMetadata()
    spec: FreeObject = Field(default={}, description="any fields of a PodSpec; merged over what the operator makes")
