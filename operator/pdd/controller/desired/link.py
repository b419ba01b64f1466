"""All desired objects of a PDDLink: gateway, Services and certificates in A; the endpoints' certificate in B. Pure."""

from __future__ import annotations

from pdd.api.config import EngineType
from pdd.api.deployment import ServiceType
from pdd.api.engines import kv_port_range
from pdd.api.render_config import (
    GATEWAY_HTTP_PORT,
    GATEWAY_LINE_PORT,
    build_gateway_config,
    gateway_tls_files,
)
from pdd.api.v1alpha1 import PDDLink
from pdd.common.certs import Pair
from pdd.controller.desired.config import build_configmap, build_tls_secret, dump
from pdd.controller.desired.endpoint import endpoint_tls_name
from pdd.controller.desired.gateway import (
    CONFIG_FILE,
    build_gateway,
    gateway_config_name,
    gateway_line_name,
    gateway_name,
    gateway_tls_secret_name,
)
from pdd.controller.desired.pod import Images
from pdd.controller.desired.service import build_service, service_port
from pdd.controller.diff import with_hash
from pdd.controller.kube.resources import Object
from pdd.controller.labels import Owner


def owner_of(link: PDDLink, site: str) -> Owner:
    return Owner("PDDLink", link.namespace, link.name, link.uid, site, link.uid)


def build_link_a(
    link: PDDLink,
    *,
    images: Images,
    capture_cidrs: tuple[str, ...],
    leaf: Pair,
    ca_cert: bytes,
) -> list[Object]:
    """The gateway with its Services, configuration and certificate. The CA's own Secret is made once and not in the
    list."""
    owner, ref, name, namespace = owner_of(link, "a"), link.to_object(), link.name, link.namespace
    # KV ports of every engine type, used or not: a list that followed the deployments would restart the gateway, and
    # with
    # it everybody's line, whenever one comes or goes.
    ports = [port for type_ in EngineType for port in kv_port_range(type_)]
    allow = [f"{cidr}:{min(ports)}-{max(ports)}" for cidr in sorted(capture_cidrs)]
    config = build_gateway_config(link, tls=gateway_tls_files(link), allow=tuple(allow))
    exposure = link.spec.gateway_or_default.exposure
    objects = [
        build_service(
            owner,
            ref,
            name=gateway_name(name),
            namespace=namespace,
            component="gateway",
            ports=[service_port("http", GATEWAY_HTTP_PORT, "http"), service_port("line", GATEWAY_LINE_PORT, "line")],
        ),
        build_configmap(
            owner,
            ref,
            name=gateway_config_name(name),
            namespace=namespace,
            component="gateway",
            data={CONFIG_FILE: dump(config)},
        ),
        build_tls_secret(
            owner,
            ref,
            name=gateway_tls_secret_name(name),
            namespace=namespace,
            component="gateway",
            pair=leaf,
            ca_cert=ca_cert,
        ),
        build_gateway(link, config, owner, ref, images),
    ]
    if exposure.type is not ServiceType.CLUSTER_IP:
        objects.append(
            build_service(
                owner,
                ref,
                name=gateway_line_name(name),
                namespace=namespace,
                component="gateway",
                type_=exposure.type,
                ports=[service_port("line", GATEWAY_LINE_PORT, "line", exposure.node_port)],
                annotations=exposure.annotations,
                load_balancer_class=exposure.load_balancer_class,
            )
        )
    return [with_hash(obj) for obj in objects]


def build_link_b(link: PDDLink, *, anchor: Object, leaf: Pair, ca_cert: bytes) -> list[Object]:
    """The certificate that all endpoints of this link share, owned by the link's anchor."""
    owner = owner_of(link, "b")
    secret = build_tls_secret(
        owner,
        anchor,
        name=endpoint_tls_name(link.name),
        namespace=link.spec.member.namespace,
        component="endpoint",
        pair=leaf,
        ca_cert=ca_cert,
    )
    return [with_hash(secret)]
