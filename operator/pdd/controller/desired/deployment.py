"""All desired objects of a PDDDeployment: one list per site. Pure."""

from __future__ import annotations

from pdd.api.config import Endpoints, RouterConfig
from pdd.api.deployment import Role
from pdd.api.engines import HTTP_PORT, KV_PORT
from pdd.api.linkspec import Transport
from pdd.api.render_config import (
    GATEWAY_HTTP_PORT,
    RouterAddresses,
    build_endpoint_config,
    build_router_config,
    endpoint_tls_files,
)
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.controller.desired.config import build_configmap, build_secret, dump
from pdd.controller.desired.endpoint import CONFIG_FILE as ENDPOINT_FILE
from pdd.controller.desired.endpoint import build_endpoint, endpoint_config_name, endpoint_tls_name
from pdd.controller.desired.engine import (
    Extra,
    build_engine,
    connector_configmap_name,
    connector_data,
    engine_name,
    needs_connector,
)
from pdd.controller.desired.gateway import gateway_name
from pdd.controller.desired.pod import Images
from pdd.controller.desired.router import CONFIG_FILE as ROUTER_FILE
from pdd.controller.desired.router import PORT as ROUTER_PORT
from pdd.controller.desired.router import build_router, router_config_name, router_name
from pdd.controller.desired.service import build_service, service_port
from pdd.controller.diff import with_hash
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner

ALLOW_OVERRIDES = "pdd.dev/allow-overrides"


def owner_of(deployment: PDDDeployment, site: str, link_uid: str) -> Owner:
    return Owner("PDDDeployment", deployment.namespace, deployment.name, deployment.uid, site, link_uid)


def build_site_a(
    deployment: PDDDeployment, link: PDDLink, *, images: Images, drain_token: str, relay_replicas: int
) -> list[Object]:
    """Services, configuration, P, RLD and router. `relay_replicas` is the autoscaler's word, or the spec's."""
    owner, ref = owner_of(deployment, "a", link.uid), deployment.to_object()
    namespace, name = deployment.namespace, deployment.name
    config = router_config(deployment, link, drain_token)
    objects: list[Object] = []
    for role in (Role.PREFILL, Role.RELAY_DECODE):
        ports = [service_port("http", HTTP_PORT, "http"), service_port("kv", KV_PORT, "kv")]
        objects.append(
            build_service(
                owner,
                ref,
                name=engine_name(name, role),
                namespace=namespace,
                component=role.slug,
                ports=ports,
                headless=True,
            )
        )
    router = deployment.spec.router
    objects.append(
        build_service(
            owner,
            ref,
            name=router_name(name),
            namespace=namespace,
            component="router",
            type_=router.service.type,
            ports=[service_port("http", 80, "http", router.service.node_port)],
            annotations=router.service.annotations,
        )
    )
    objects.append(
        build_secret(
            owner,
            ref,
            name=router_config_name(name),
            namespace=namespace,
            component="router",
            data={ROUTER_FILE: dump(config).encode()},
        )
    )
    if needs_connector(deployment):
        objects.append(
            build_configmap(
                owner,
                ref,
                name=connector_configmap_name(name),
                namespace=namespace,
                component="connector",
                data=connector_data(),
            )
        )
    counts = {Role.PREFILL: deployment.role(Role.PREFILL).replicas, Role.RELAY_DECODE: relay_replicas}
    objects += [
        build_engine(deployment, role, owner, ref, namespace=namespace, replicas=count, images=images)
        for role, count in counts.items()
    ]
    objects.append(build_router(deployment, config, owner, ref, images))
    return [with_hash(obj) for obj in objects]


def build_site_b(
    deployment: PDDDeployment,
    link: PDDLink,
    *,
    images: Images,
    anchor: Object,
    gateway_address: str,
    capture_cidrs: tuple[str, ...],
) -> list[Object]:
    """Endpoint configuration and MD. `anchor` is the live anchor in B, whose UID owns them; it is not in the list."""
    owner = owner_of(deployment, "b", link.uid)
    namespace, name = link.spec.member.namespace, deployment.name
    objects: list[Object] = []
    extra = Extra()
    if link.spec.transport is Transport.GATEWAY:
        config = build_endpoint_config(
            deployment,
            link,
            name=engine_name(name, Role.MAIN_DECODE),
            gateway=gateway_address,
            tls=endpoint_tls_files(link),
            redirect_cidrs=capture_cidrs,
        )
        objects.append(
            build_configmap(
                owner,
                anchor,
                name=endpoint_config_name(name),
                namespace=namespace,
                component="endpoint",
                data={ENDPOINT_FILE: dump(config)},
            )
        )
        extra = build_endpoint(
            config,
            config_name=endpoint_config_name(name),
            tls_secret=endpoint_tls_name(link.name),
            images=images,
            resources=link.spec.endpoint_or_default.resources,
        )
    if needs_connector(deployment):
        objects.append(
            build_configmap(
                owner,
                anchor,
                name=connector_configmap_name(name),
                namespace=namespace,
                component="connector",
                data=connector_data(),
            )
        )
    objects.append(
        build_engine(
            deployment,
            Role.MAIN_DECODE,
            owner,
            anchor,
            namespace=namespace,
            replicas=deployment.role(Role.MAIN_DECODE).replicas,
            images=images,
            extra=extra,
        )
    )
    return [with_hash(obj) for obj in objects]


def router_config(deployment: PDDDeployment, link: PDDLink, drain_token: str) -> RouterConfig:
    """The router's configuration; engines are found by DNS, MDs through the gateway."""

    def dns(role: Role) -> Endpoints:
        return Endpoints(dns=f"{engine_name(deployment.name, role)}.{deployment.namespace}.svc:{HTTP_PORT}")

    gateway = f"http://{gateway_name(link.name)}.{link.namespace}.svc:{GATEWAY_HTTP_PORT}"
    addresses = RouterAddresses(prefill=dns(Role.PREFILL), relay_decode=dns(Role.RELAY_DECODE), gateway=gateway)
    config = build_router_config(deployment, link, addresses, drain_token=drain_token)
    allowed = (deployment.metadata.get("annotations") or {}).get(ALLOW_OVERRIDES) == "true"
    return config.model_copy(update={"allow_overrides": True}) if allowed else config


def router_url(deployment: PDDDeployment) -> str:
    return f"http://{router_name(deployment.name)}.{deployment.namespace}.svc"


__all__ = ["ROUTER_PORT", "build_site_a", "build_site_b", "owner_of", "router_config", "router_url"]
