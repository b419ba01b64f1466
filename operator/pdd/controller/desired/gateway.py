"""The link gateway's StatefulSet in A. Pure."""

from __future__ import annotations

from typing import Any

from pdd.api.config import GatewayConfig
from pdd.api.render_config import GATEWAY_HTTP_PORT, GATEWAY_LINE_PORT, TLS_FOLDER
from pdd.api.v1alpha1 import PDDLink
from pdd.controller.desired.config import dump
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

CONFIG_FOLDER = "/etc/pdd/link"
CONFIG_FILE = "gateway.json"
REQUESTS = {"cpu": "100m", "memory": "128Mi"}


def gateway_name(link_name: str) -> str:
    return child_name(link_name, "gateway")


def gateway_line_name(link_name: str) -> str:
    return child_name(link_name, "gateway-line")


def gateway_config_name(link_name: str) -> str:
    return child_name(link_name, "gateway-config")


def gateway_tls_secret_name(link_name: str) -> str:
    return child_name(link_name, "gateway-tls")


def ca_secret_name(link_name: str) -> str:
    return child_name(link_name, "ca")


def build_gateway(link: PDDLink, config: GatewayConfig, owner: Owner, owner_ref: Object, images: Images) -> Object:
    """One gateway: it is the single end of all streams of the link."""
    name, spec = gateway_name(link.name), link.spec.gateway_or_default
    container: dict[str, Any] = {
        "name": "gateway",
        "image": images.link,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "pdd.link", "gateway"],
        "args": ["--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}"],
        "ports": [
            {"name": "line", "containerPort": GATEWAY_LINE_PORT, "protocol": "TCP"},
            {"name": "http", "containerPort": GATEWAY_HTTP_PORT, "protocol": "TCP"},
        ],
        "resources": resources_of(spec.resources, REQUESTS),
        "securityContext": container_security(),
        "startupProbe": http_probe("/healthz", "http", period_s=1, failures=60),
        "readinessProbe": http_probe("/healthz", "http", period_s=2, failures=3),
        "livenessProbe": http_probe("/healthz", "http", period_s=10, failures=6, timeout_s=5),
        "volumeMounts": [
            scratch_mount(),
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True},
        ],
    }
    template = pod_template(
        labels=owner.labels("gateway"),
        config_checksum=checksum(dump(config)),
        spec={
            "terminationGracePeriodSeconds": 15,
            "containers": [container],
            "volumes": [
                scratch_volume(),
                {"name": "config", "configMap": {"name": gateway_config_name(link.name)}},
                {"name": "tls", "secret": {"secretName": gateway_tls_secret_name(link.name), "defaultMode": 0o440}},
            ],
        },
        override=spec.pod_template,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(owner, name, link.namespace, "gateway", owner_ref=owner_ref),
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 3,
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": owner.selector("gateway")},
            "template": template,
        },
    }
