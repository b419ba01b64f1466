"""Spec of PDDLink: cluster B's credentials and identity, and the line to it. The platform team's object."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from pdd.api.base import Model
from pdd.api.deployment import ServiceType
from pdd.api.fields import CIDR, ArgList, EnvList, Label, Name, PodTemplate, Port, Resources, TextMap

AllowedNamespace = Annotated[str, Field(max_length=63, pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]


class KubeconfigRef(Model):
    """A Secret beside the PDDLink whose key holds a kubeconfig for cluster B (`pdd link create` makes it)."""

    name: Name
    key: str = Field(default="kubeconfig", min_length=1, max_length=253)


class ExecCredential(Model):
    """A credential plugin in the operator's image (client.authentication.k8s.io)."""

    command: str = Field(
        min_length=1, max_length=512, description="bare name of a program in the operator's plugin folder"
    )
    args: ArgList = Field(default=())
    env: EnvList = Field(default=())
    server: str = Field(min_length=1, max_length=512, pattern="^https://", description="API server of cluster B")
    ca_data: str = Field(default="", max_length=65536, description="PEM certificates of its CA, base64")
    timeout_s: int = Field(default=30, ge=1, le=300)


class Identity(Model):
    """Which cluster B must be. Without it the first cluster seen is pinned in status."""

    kube_system_uid: str | None = Field(
        default=None,
        alias="kubeSystemUID",
        max_length=36,
        pattern="^[0-9a-f-]{36}$",
        description="UID of namespace kube-system of cluster B",
    )


class MemberSpec(Model):
    """How cluster B is reached, and where in it we work. Exactly one of kubeconfigSecretRef and exec."""

    kubeconfig_secret_ref: KubeconfigRef | None = None
    exec_: ExecCredential | None = Field(default=None, alias="exec")
    namespace: Label = Field(default="pdd", description="namespace in cluster B that holds all of ours")
    identity: Identity = Identity()


class Price(Model):
    """What the line costs. Recorded for planning; nothing else depends on it."""

    currency: str = Field(default="USD", pattern="^[A-Z]{3}$", max_length=3)
    cents_per_hour: int = Field(ge=0, le=1_000_000_000)


class LineSpec(Model):
    """The Ethernet line as ordered. The gateway measures the real one."""

    capacity_mbps: int = Field(ge=1, le=1_600_000, description="megabits per second, one direction")
    rtt_ms: int = Field(ge=0, le=10000, description="round trip in milliseconds")
    price: Price | None = None


class Transport(StrEnum):
    """Gateway: our gateway and endpoints carry the KV. Direct: pods of both clusters reach each other."""

    GATEWAY = "Gateway"
    DIRECT = "Direct"


class CongestionControl(StrEnum):
    BBR = "BBR"
    CUBIC = "CUBIC"


class FastLane(Model):
    """Token ids, token streams, control."""

    dscp: int = Field(default=46, ge=0, le=63, description="DiffServ code point of its packets")


class BulkLane(Model):
    """KV cache."""

    rate_cap_mbps: int | None = Field(
        default=None, ge=1, le=1_600_000, description="budget of all deployments on this link; none: line.capacityMbps"
    )


class Lanes(Model):
    """Two lanes on separate connections: the fast one never waits behind the bulk one."""

    fast: FastLane = FastLane()
    bulk: BulkLane = BulkLane()


class TLSSpec(Model):
    """Mutual TLS between gateway and endpoints. Without caSecretRef the operator makes a CA of its own."""

    ca_secret_ref: Name | None = Field(default=None, description="Secret with tls.crt and tls.key of a CA to use")
    certificate_days: int = Field(default=90, ge=1, le=3650, description="lifetime of the ends' certificates")
    renew_before_days: int = Field(default=30, ge=1, le=3649, description="renewed so long before they end")


class Advertise(Model):
    """The address under which cluster B reaches the gateway."""

    host: str = Field(min_length=1, max_length=253, description="name or IP address")
    port: Port | None = Field(default=None, description="none: the exposed port")


class Exposure(Model):
    """How the gateway's line port (mTLS) is exposed to cluster B."""

    type: ServiceType = ServiceType.NODE_PORT
    node_port: Port | None = Field(default=None, description="fixed node port; none: Kubernetes picks one")
    annotations: TextMap = Field(default={})
    load_balancer_class: str | None = Field(default=None, min_length=1, max_length=253)
    advertise: Advertise | None = Field(
        default=None, description="none: the load balancer's address, or a node's address and node port"
    )


class GatewaySpec(Model):
    """A's end of the line."""

    exposure: Exposure = Exposure()
    resources: Resources = Resources()
    pod_template: PodTemplate = PodTemplate()


class KVCapture(StrEnum):
    """How the endpoint gets the engine's own connections. Redirect: iptables in the pod (needs NET_ADMIN in an init
    container). Connect: the engine dials through the endpoint's CONNECT proxy (reference engine only)."""

    REDIRECT = "Redirect"
    CONNECT = "Connect"


class EndpointSpec(Model):
    """B's end of the line: the sidecar beside each MD."""

    capture: KVCapture = KVCapture.REDIRECT
    capture_cidrs: tuple[CIDR, ...] = Field(
        default=(),
        max_length=16,
        alias="captureCIDRs",
        description="addresses of prefill engines in cluster A that are carried; none: the pod CIDRs of A's nodes",
    )
    resources: Resources = Resources()


class PDDLinkSpec(Model):
    """The line to one other cluster, shared by all PDDDeployments that name it."""

    member: MemberSpec
    line: LineSpec
    transport: Transport = Transport.GATEWAY
    streams: int = Field(default=4, ge=1, le=16, description="TCP streams of one endpoint")
    congestion_control: CongestionControl = Field(
        default=CongestionControl.BBR, description="of each socket; where the kernel lacks it, the kernel's default"
    )
    lanes: Lanes = Lanes()
    tls: TLSSpec = TLSSpec()
    gateway: GatewaySpec | None = Field(default=None, description="only with transport Gateway")
    endpoint: EndpointSpec | None = Field(default=None, description="only with transport Gateway")
    allowed_namespaces: tuple[AllowedNamespace, ...] = Field(
        default=(), max_length=64, description="other namespaces whose PDDDeployments may use this link; `*`: all"
    )

    @property
    def gateway_or_default(self) -> GatewaySpec:
        return self.gateway or GatewaySpec()

    @property
    def endpoint_or_default(self) -> EndpointSpec:
        return self.endpoint or EndpointSpec()

    @property
    def rate_cap_mbps(self) -> int:
        """Megabits per second that KV of all deployments together may use."""
        return self.lanes.bulk.rate_cap_mbps or self.line.capacity_mbps
