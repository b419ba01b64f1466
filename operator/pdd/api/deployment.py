"""Spec of PDDDeployment: one model, three roles, a router, an SLA. It names a PDDLink and holds no credentials.

All numbers are integers with their unit in the name. Defaults are static, so the API server stores them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from pdd.api.base import Model
from pdd.api.config import EngineType, HandoffMode
from pdd.api.fields import (
    ArgList,
    EnvList,
    Label,
    Name,
    PodTemplate,
    Port,
    Resources,
    ShortText,
    TextMap,
)


class Role(StrEnum):
    """The three engine roles. The value is the key under `spec.roles`."""

    PREFILL = "prefill"
    RELAY_DECODE = "relayDecode"
    MAIN_DECODE = "mainDecode"

    @property
    def slug(self) -> str:
        """As it stands in object names and in the engine's `--role`: prefill, relay-decode, main-decode."""
        return {"prefill": "prefill", "relayDecode": "relay-decode", "mainDecode": "main-decode"}[self.value]

    @property
    def site(self) -> str:
        """Cluster that runs this role: A (prefill, relay decode) or B (main decode)."""
        return "B" if self is Role.MAIN_DECODE else "A"


class LinkRef(Model):
    """The PDDLink to use."""

    name: Name = Field(description="name of the PDDLink")
    namespace: Label | None = Field(
        default=None, description="its namespace; none: the PDDDeployment's own. The link must allow it"
    )


class ImageSource(Model):
    """Weights in an OCI image, mounted read-only (Kubernetes image volume)."""

    reference: str = Field(min_length=1, max_length=512)
    pull_policy: str = Field(default="IfNotPresent", pattern="^(Always|IfNotPresent|Never)$", max_length=16)


class PVCSource(Model):
    """Weights on a PersistentVolumeClaim of this name, which must exist in both clusters."""

    claim_name: Name
    path: str = Field(default="", max_length=512, description="folder inside the volume")


class HostPathSource(Model):
    """Weights in a folder of the node, in both clusters."""

    path: str = Field(min_length=1, max_length=512, pattern="^/")


class ModelSource(Model):
    """Where the weights come from: at most one of the four. None: the engine fetches `model.name` by itself, or has
    the model built in (the reference engine)."""

    image: ImageSource | None = None
    persistent_volume_claim: PVCSource | None = None
    host_path: HostPathSource | None = None
    uri: str | None = Field(
        default=None,
        max_length=512,
        pattern=r"^hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="hf://org/name: the engine downloads it at start",
    )


class KVSpec(Model):
    """How large the KV cache is. The router predicts transfers from it."""

    bytes_per_token: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="KV bytes of one token over all layers and both K and V; may be left out for the reference engine",
    )
    state_bytes: int = Field(default=0, ge=0, le=2**40, description="bytes of state that do not grow with tokens")
    block_size: int = Field(default=16, ge=1, le=1024, description="tokens in a KV block")


class ModelSpec(Model):
    """The model, the same in every role."""

    name: str = Field(min_length=1, max_length=253, description="the model's own name, for example Qwen/Qwen3-32B")
    served_names: tuple[ShortText, ...] = Field(
        default=(), max_length=16, description="names that clients may use; none: model.name"
    )
    tokenizer: str = Field(
        default="",
        max_length=512,
        description="`bytes`, or a folder with tokenizer.json in the router's pod; empty: `bytes` for the reference "
        "engine, else the model's folder",
    )
    max_context_tokens: int = Field(default=16384, ge=16, le=16777216, description="prompt and output together")
    kv: KVSpec = KVSpec()
    source: ModelSource = ModelSource()
    parameters_millions: int | None = Field(
        default=None, ge=1, le=100_000_000, description="millions of parameters; used to check that the model fits"
    )
    bits_per_weight: int = Field(default=16, ge=1, le=64, description="bits of one stored weight")
    weight_mib: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        alias="weightMiB",
        description="size of all weights in MiB; overrides parametersMillions x bitsPerWeight",
    )


class KVConnector(StrEnum):
    """How a vLLM engine reads KV. Clamping: our small subclass of its connector, which lets a longer prompt come with
    the handle. Stock: unchanged vLLM; the router then lands first and continues in a second call."""

    CLAMPING = "Clamping"
    STOCK = "Stock"


class EngineSpec(Model):
    """The inference engine, for all roles; a role may override."""

    type: EngineType = Field(
        default=EngineType.REFERENCE, description="which engine; sglang is refused with a reason until it is built"
    )
    image: str = Field(default="", max_length=512, description="empty: the operator's engine image")
    image_pull_policy: str = Field(default="IfNotPresent", pattern="^(Always|IfNotPresent|Never)$", max_length=16)
    args: ArgList = Field(default=(), description="appended to the engine's command line")
    env: EnvList = Field(default=(), description="environment variables; they replace ours of the same name")
    max_sequences: int = Field(default=64, ge=1, le=65536, description="sequences that one engine runs at once")
    chunk_tokens: int | None = Field(
        default=None, ge=16, le=1048576, description="tokens that one step may prefill; none: the engine decides"
    )
    kv_blocks: int | None = Field(
        default=None, ge=8, le=2**31 - 1, description="KV blocks of one engine; none: the engine decides"
    )
    gpu_memory_percent: int = Field(default=90, ge=1, le=100, description="share of an accelerator that vLLM may take")
    kv_connector: KVConnector = Field(default=KVConnector.CLAMPING, description="vllm only")


class EngineOverrides(Model):
    """What a role may change. Lists are appended to those of spec.engine; the rest replaces."""

    image: str | None = Field(default=None, min_length=1, max_length=512, description="replaces spec.engine.image")
    args: ArgList = Field(default=(), description="appended to spec.engine.args")
    env: EnvList = Field(default=(), description="added to spec.engine.env; the same name replaces")
    max_sequences: int | None = Field(default=None, ge=1, le=65536, description="replaces spec.engine.maxSequences")
    chunk_tokens: int | None = Field(default=None, ge=16, le=1048576, description="replaces spec.engine.chunkTokens")
    kv_blocks: int | None = Field(default=None, ge=8, le=2**31 - 1, description="replaces spec.engine.kvBlocks")
    gpu_memory_percent: int | None = Field(
        default=None, ge=1, le=100, description="replaces spec.engine.gpuMemoryPercent"
    )


class Accelerator(Model):
    """Accelerators of one engine. count 0: the engine runs on the CPU."""

    type: str = Field(default="", max_length=63, description="product, for example H20, H200, 910B")
    count: int = Field(default=0, ge=0, le=64, description="accelerators of one engine (tensor parallel)")
    resource_name: str = Field(
        default="nvidia.com/gpu", min_length=1, max_length=253, description="what pods ask the device plugin for"
    )
    memory_mib: int | None = Field(
        default=None, ge=1, le=2**31 - 1, alias="memoryMiB", description="memory of one; needed only for unlisted types"
    )


class RoleSpec(Model):
    """One role: how many engines, on what."""

    replicas: int = Field(default=1, ge=1, le=1024, description="engines of this role")
    accelerator: Accelerator = Accelerator()
    resources: Resources = Resources()
    pod_template: PodTemplate = PodTemplate()
    engine: EngineOverrides = EngineOverrides()


class ScaleUp(Model):
    """How engines are added."""

    stabilization_s: int = Field(default=0, ge=0, le=3600, description="wait that long before adding")
    max_step: int = Field(default=4, ge=1, le=1024, description="engines added at once, at most")


class ScaleDown(Model):
    """How engines are removed; only such that have drained."""

    stabilization_s: int = Field(default=300, ge=0, le=86400, description="highest need of this window is kept")
    max_step: int = Field(default=1, ge=1, le=1024, description="engines removed at once, at most")
    drain_timeout_s: int = Field(default=600, ge=0, le=86400, description="an engine with sessions is kept this long")


class ScalingBehavior(Model):
    """How fast the number of engines follows the need."""

    scale_up: ScaleUp = ScaleUp()
    scale_down: ScaleDown = ScaleDown()


class RelayAutoscaling(Model):
    """Scaling of relay decode on handoff load: sessions = arrivals x holding time."""

    min_replicas: int = Field(default=1, ge=1, le=1024, description="never fewer engines")
    max_replicas: int = Field(default=4, ge=1, le=1024, description="never more engines")
    sessions_per_replica: int = Field(
        default=16, ge=1, le=65536, description="relayed requests that one RLD engine holds at once within the SLA"
    )
    target_utilization_percent: int = Field(
        default=70, ge=1, le=100, description="share of sessionsPerReplica to aim at; the rest is room for bursts"
    )
    behavior: ScalingBehavior = ScalingBehavior()


class RelayRoleSpec(RoleSpec):
    """Relay decode: as any role, and it may be scaled."""

    autoscaling: RelayAutoscaling | None = Field(default=None, description="none: `replicas` is fixed")


class Roles(Model):
    """P and RLD run in cluster A, MD in cluster B."""

    prefill: RoleSpec = RoleSpec()
    relay_decode: RelayRoleSpec = RelayRoleSpec()
    main_decode: RoleSpec = RoleSpec()


class AbnormalPolicy(StrEnum):
    """RelayToEnd: the rule applies. Normal: such requests go like all others."""

    RELAY_TO_END = "RelayToEnd"
    NORMAL = "Normal"


class AbnormalTrafficSpec(Model):
    """Very long uncached input with very short output. RelayToEnd: RLD runs it to the end, nothing crosses the line."""

    policy: AbnormalPolicy = AbnormalPolicy.RELAY_TO_END
    max_output_tokens: int = Field(
        default=500, ge=1, le=1048576, description="only requests that ask for at most so many tokens"
    )
    min_transfer_ms: int = Field(default=5000, ge=1, le=3600000, description="predicted transfer from which it applies")


class RouterLimitsSpec(Model):
    """Bounds of admission; beyond them the answer is 429 with Retry-After."""

    max_concurrent: int = Field(default=256, ge=1, le=1048576, description="requests in flight in one router")
    max_queued: int = Field(default=256, ge=0, le=1048576, description="requests that wait for a place")
    max_relay_sessions: int = Field(default=64, ge=1, le=65536, description="sessions on one RLD engine")
    request_timeout_s: int = Field(default=600, ge=1, le=86400, description="whole request")
    connect_timeout_ms: int = Field(default=2000, ge=1, le=600000, description="connection to an engine")
    first_token_timeout_s: int = Field(default=120, ge=1, le=86400, description="prefill, its queue included")
    token_timeout_s: int = Field(default=30, ge=1, le=86400, description="longest gap between two tokens")
    max_body_mib: int = Field(default=16, ge=1, le=1024, alias="maxBodyMiB")


class ServiceType(StrEnum):
    """Type of a Kubernetes Service."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class RouterService(Model):
    """The Service in front of the routers."""

    type: ServiceType = ServiceType.CLUSTER_IP
    node_port: Port | None = None
    annotations: TextMap = Field(default={})


class OverridePolicy(StrEnum):
    """Whether clients may choose the pipeline."""

    FORBID = "Forbid"
    ALLOW = "Allow"


class RouterSpec(Model):
    """The OpenAI-compatible front in cluster A."""

    replicas: int = Field(default=1, ge=1, le=64, description="routers; each works alone")
    relay_threshold_ms: int = Field(
        default=200, ge=0, le=3600000, description="predicted wait for KV above which RLD relays"
    )
    handoff_mode: HandoffMode = Field(
        default=HandoffMode.AUTO,
        description="OneShot: all eager tokens in one step. CatchUp: shrinking batches. Auto: by their number",
    )
    one_shot_limit_tokens: int = Field(default=64, ge=1, le=65536, description="eager tokens handed over in one step")
    abnormal_traffic: AbnormalTrafficSpec = AbnormalTrafficSpec()
    limits: RouterLimitsSpec = RouterLimitsSpec()
    pipeline_overrides: OverridePolicy = Field(
        default=OverridePolicy.FORBID, description="whether a request header may choose the pipeline (benches, demos)"
    )
    service: RouterService = RouterService()
    resources: Resources = Resources()
    pod_template: PodTemplate = PodTemplate()


Milliseconds = Annotated[int, Field(ge=1, le=3600000)]


class SLASpec(Model):
    """What is promised to clients. Recorded for reports and planning; no request is refused because of it."""

    ttft_p90_ms: Milliseconds | None = Field(default=None, description="time to first token, 90th percentile")
    ttft_p99_ms: Milliseconds | None = Field(default=None, description="time to first token, 99th percentile")
    tpot_p99_ms: Milliseconds | None = Field(default=None, description="time per output token, 99th percentile")


class PDDDeploymentSpec(Model):
    """One model served from two clusters."""

    link_ref: LinkRef
    model: ModelSpec
    engine: EngineSpec = EngineSpec()
    roles: Roles = Roles()
    router: RouterSpec = RouterSpec()
    sla: SLASpec = SLASpec()


__all__ = [
    "AbnormalPolicy",
    "Accelerator",
    "EngineOverrides",
    "EngineSpec",
    "EngineType",
    "HandoffMode",
    "KVConnector",
    "KVSpec",
    "LinkRef",
    "ModelSource",
    "ModelSpec",
    "OverridePolicy",
    "PDDDeploymentSpec",
    "RelayAutoscaling",
    "RelayRoleSpec",
    "Role",
    "RoleSpec",
    "Roles",
    "RouterSpec",
    "SLASpec",
    "ServiceType",
]
