"""StatefulSets of the engines: P and RLD in A, MD (with the link endpoint) in B. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdd.api.config import EngineType
from pdd.api.deployment import KVConnector, ModelSource, Role
from pdd.api.engines import (
    CONNECTOR_FILE,
    CONNECTOR_MOUNT,
    HTTP_PORT,
    KV_PORT,
    MODEL_MOUNT,
    connector_source,
    engine_command,
    engine_params,
)
from pdd.api.v1alpha1 import PDDDeployment
from pdd.controller.desired.pod import (
    RUN_AS,
    Images,
    checksum,
    container_security,
    env_list,
    field_env,
    http_probe,
    pod_template,
    resources_of,
    scratch_mount,
    scratch_volume,
)
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner, child_name, metadata

REFERENCE_REQUESTS = {"cpu": "100m", "memory": "192Mi"}
OTHER_REQUESTS = {"cpu": "1", "memory": "4Gi"}
START_LIMIT_S = {EngineType.REFERENCE: 180}
DEFAULT_START_LIMIT_S = 3600
"""A large model may load for long; the container is restarted only beyond this."""

TERMINATION_GRACE_S = 30
"""Time for running requests to end and for exported KV to be read before a pod is killed."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a role's pod has besides the engine: the endpoint in MD pods. `config` goes into the checksum."""

    containers: tuple[dict[str, Any], ...] = ()
    init_containers: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    config: str = ""
    kv_proxy: str = ""


def engine_name(deployment_name: str, role: Role) -> str:
    """Name of the StatefulSet, of its headless Service, and of the pods' common part."""
    return child_name(deployment_name, role.slug)


def connector_configmap_name(deployment_name: str) -> str:
    return child_name(deployment_name, "connector")


def needs_connector(deployment: PDDDeployment) -> bool:
    engine = deployment.spec.engine
    return engine.type is EngineType.VLLM and engine.kv_connector is KVConnector.CLAMPING


def connector_data() -> dict[str, str]:
    return {CONNECTOR_FILE: connector_source()}


def build_engine(
    deployment: PDDDeployment,
    role: Role,
    owner: Owner,
    owner_ref: Object,
    *,
    namespace: str,
    replicas: int,
    images: Images,
    extra: Extra | None = None,
) -> Object:
    """The StatefulSet of one role. Raises InvalidInput for an engine type that is not built."""
    more = extra or Extra()
    name, spec = engine_name(deployment.name, role), deployment.role(role)
    labels = owner.labels(role.slug)
    volumes, mounts = model_volumes(deployment.spec.model.source)
    if needs_connector(deployment):
        volumes.append({"name": "connector", "configMap": {"name": connector_configmap_name(deployment.name)}})
        mounts.append({"name": "connector", "mountPath": CONNECTOR_MOUNT, "readOnly": True})
    if deployment.spec.engine.type is not EngineType.REFERENCE:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    container = _engine_container(deployment, role, images, mounts, more.kv_proxy)
    pod_spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "containers": [container, *more.containers],
        "volumes": [scratch_volume(), *volumes, *more.volumes],
    }
    if more.init_containers:
        pod_spec["initContainers"] = list(more.init_containers)
    template = pod_template(
        labels=labels,
        config_checksum=checksum([more.config, connector_data() if needs_connector(deployment) else {}]),
        spec=pod_spec,
        override=spec.pod_template,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(owner, name, namespace, role.slug, owner_ref=owner_ref),
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 3,
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": owner.selector(role.slug)},
            "template": template,
        },
    }


def _engine_container(
    deployment: PDDDeployment, role: Role, images: Images, mounts: list[dict[str, Any]], kv_proxy: str
) -> dict[str, Any]:
    engine, spec = deployment.spec.engine, deployment.role(role)
    command = engine_command(engine_params(deployment, role, kv_proxy=kv_proxy))
    reference = engine.type is EngineType.REFERENCE
    resources = resources_of(spec.resources, REFERENCE_REQUESTS if reference else OTHER_REQUESTS)
    if spec.accelerator.count:
        count = str(spec.accelerator.count)
        for part in ("requests", "limits"):
            resources[part] = {**resources.get(part, {}), spec.accelerator.resource_name: count}
    start_limit_s = START_LIMIT_S.get(engine.type, DEFAULT_START_LIMIT_S)
    period_s = 1 if reference else 5
    env = [field_env("POD_IP", "status.podIP"), {"name": "HOME", "value": "/tmp"}]
    if reference:
        env.append({"name": "PDD_ENGINE_GRACE_S", "value": str(TERMINATION_GRACE_S - 5)})
    return {
        "name": "engine",
        "image": spec.engine.image or engine.image or images.engine,
        "imagePullPolicy": engine.image_pull_policy,
        "command": list(command.command),
        "args": list(command.args),
        "env": [*env, *env_list(command.env)],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "kv", "containerPort": KV_PORT, "protocol": "TCP"},
        ],
        "resources": resources,
        "securityContext": container_security(user=RUN_AS, read_only=reference),
        "startupProbe": http_probe("/health", "http", period_s=period_s, failures=start_limit_s // period_s),
        "readinessProbe": http_probe("/health", "http", period_s=2, failures=3, timeout_s=3),
        "livenessProbe": http_probe("/health", "http", period_s=10, failures=6, timeout_s=10),
        "volumeMounts": [scratch_mount(), *mounts],
    }


def model_volumes(source: ModelSource) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volume and mount of the weights, read-only at /models; empty when the engine brings or fetches them itself."""
    if source.image is not None:
        volume = {"image": {"reference": source.image.reference, "pullPolicy": source.image.pull_policy}}
    elif source.persistent_volume_claim is not None:
        volume = {"persistentVolumeClaim": {"claimName": source.persistent_volume_claim.claim_name}}
    elif source.host_path is not None:
        volume = {"hostPath": {"path": source.host_path.path, "type": "Directory"}}
    else:
        return [], []
    return [{"name": "model", **volume}], [{"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True}]
