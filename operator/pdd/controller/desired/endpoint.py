"""The link endpoint in an MD pod: sidecar, init container for the redirect, their volumes. Pure."""

from __future__ import annotations

from typing import Any

from pdd.api.config import EndpointConfig, EndpointMode
from pdd.api.fields import Resources
from pdd.api.render_config import ENDPOINT_HTTP_PORT, ENDPOINT_KV_PORT, TLS_FOLDER
from pdd.controller.desired.config import dump
from pdd.controller.desired.engine import Extra
from pdd.controller.desired.pod import Images, container_security, field_env, http_probe, resources_of, scratch_mount
from pdd.controller.labels import child_name

CONFIG_FOLDER = "/etc/pdd/link"
CONFIG_FILE = "endpoint.json"
REQUESTS = {"cpu": "50m", "memory": "64Mi"}


def endpoint_config_name(deployment_name: str) -> str:
    return child_name(deployment_name, "endpoint-config")


def endpoint_tls_name(link_name: str) -> str:
    return child_name(link_name, "endpoint-tls")


def build_endpoint(
    config: EndpointConfig, *, config_name: str, tls_secret: str, images: Images, resources: Resources
) -> Extra:
    """What the endpoint adds to an MD pod. In mode Connect the engine is told the proxy; in mode Redirect an init
    container, the only one with a capability, sets the rules and ends."""
    config_mount = {"name": "link-config", "mountPath": CONFIG_FOLDER, "readOnly": True}
    sidecar: dict[str, Any] = {
        "name": "link",
        "image": images.link,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "pdd.link", "endpoint"],
        "args": ["--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--name", "$(POD_NAME)"],
        "env": [field_env("POD_NAME", "metadata.name")],
        "ports": [{"name": "link-http", "containerPort": ENDPOINT_HTTP_PORT, "protocol": "TCP"}],
        "resources": resources_of(resources, REQUESTS),
        "securityContext": container_security(user=config.run_as_uid),
        "livenessProbe": http_probe("/healthz", "link-http", period_s=10, failures=6, timeout_s=5),
        "volumeMounts": [
            scratch_mount(),
            config_mount,
            {"name": "link-tls", "mountPath": TLS_FOLDER, "readOnly": True},
        ],
    }
    init: tuple[dict[str, Any], ...] = ()
    if config.mode is EndpointMode.REDIRECT:
        security = container_security(user=0)
        security["runAsNonRoot"] = False
        security["capabilities"] = {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}
        init = (
            {
                "name": "link-init",
                "image": images.link,
                "imagePullPolicy": images.pull_policy,
                "command": ["python", "-m", "pdd.link", "init-redirect"],
                "args": ["--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}"],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                "securityContext": security,
                # iptables takes its lock in /run.
                "volumeMounts": [scratch_mount(), {"name": "tmp", "mountPath": "/run", "subPath": "run"}, config_mount],
            },
        )
    return Extra(
        containers=(sidecar,),
        init_containers=init,
        volumes=(
            {"name": "link-config", "configMap": {"name": config_name}},
            {"name": "link-tls", "secret": {"secretName": tls_secret, "defaultMode": 0o440}},
        ),
        config=dump(config),
        kv_proxy=f"http://127.0.0.1:{ENDPOINT_KV_PORT}" if config.mode is EndpointMode.CONNECT else "",
    )
