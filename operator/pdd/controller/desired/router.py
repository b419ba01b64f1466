"""The router's Deployment. Pure."""

from __future__ import annotations

from typing import Any

from pdd.api.config import RouterConfig
from pdd.api.engines import MODEL_MOUNT
from pdd.api.v1alpha1 import PDDDeployment
from pdd.controller.desired.config import dump
from pdd.controller.desired.engine import model_volumes
from pdd.controller.desired.pod import (
    Images,
    checksum,
    container_security,
    http_probe,
    pod_template,
    resources_of,
    scratch_mount,
    scratch_volume,
)
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner, child_name, metadata

PORT = 8080
CONFIG_FOLDER = "/etc/pdd/router"
CONFIG_FILE = "router.json"
REQUESTS = {"cpu": "100m", "memory": "128Mi"}
PRESTOP_S = 3
"""A pod that ends goes on serving so long: until all have noticed that it is no longer an endpoint of the Service."""


def router_name(deployment_name: str) -> str:
    return child_name(deployment_name, "router")


def router_config_name(deployment_name: str) -> str:
    return child_name(deployment_name, "router-config")


def build_router(
    deployment: PDDDeployment, config: RouterConfig, owner: Owner, owner_ref: Object, images: Images
) -> Object:
    """Any number of equal routers; a roll-out never takes one away before its successor is ready."""
    name, spec = router_name(deployment.name), deployment.spec.router
    volumes, mounts = (
        model_volumes(deployment.spec.model.source) if config.tokenizer.startswith(MODEL_MOUNT) else ([], [])
    )
    container: dict[str, Any] = {
        "name": "router",
        "image": images.router,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "pdd.router"],
        "args": ["--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--host", "0.0.0.0", "--port", str(PORT)],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": resources_of(spec.resources, REQUESTS),
        "securityContext": container_security(),
        "startupProbe": http_probe("/health", "http", period_s=1, failures=120),
        "readinessProbe": http_probe("/ready", "http", period_s=2, failures=2, timeout_s=2),
        "livenessProbe": http_probe("/health", "http", period_s=10, failures=6, timeout_s=5),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_S}}},
        "volumeMounts": [
            scratch_mount(),
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            *mounts,
        ],
    }
    template = pod_template(
        labels=owner.labels("router"),
        config_checksum=checksum(dump(config)),
        spec={
            "terminationGracePeriodSeconds": 60,
            "containers": [container],
            "volumes": [
                scratch_volume(),
                {"name": "config", "secret": {"secretName": router_config_name(deployment.name), "defaultMode": 0o440}},
                *volumes,
            ],
        },
        override=spec.pod_template,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(owner, name, deployment.namespace, "router", owner_ref=owner_ref),
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": owner.selector("router")},
            "template": template,
        },
    }
