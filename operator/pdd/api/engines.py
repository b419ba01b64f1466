"""Command lines of the engines, and what each engine type promises. Pure: used by the controller and by `pdd up`.

An engine's KV ports are `kv_port` and, for vLLM, the range above it that UCX listens on (`kv_port_range`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from pdd.api.config import EngineCapabilities, EngineType, KVLayout
from pdd.api.deployment import KVConnector, ModelSpec, Role
from pdd.api.fields import EnvVar
from pdd.api.v1alpha1 import PDDDeployment
from pdd.common.errors import InvalidInput

HTTP_PORT = 8000
KV_PORT = 8001
UCX_PORTS = 16
"""Ports above kv_port that UCX may listen on (UCX_TCP_PORT_RANGE)."""
MODEL_MOUNT = "/models"
CONNECTOR_MOUNT = "/etc/pdd/connector"
CONNECTOR_FILE = "pdd_connector.py"
REFERENCE_KV = KVLayout(bytes_per_token=4096, state_bytes=0, block_size=16)
"""KV law of the built-in model; a test holds it against the engine's own `model_info()`."""
CONTEXTS_PER_REFERENCE_ENGINE = 4
"""KV blocks of a reference engine, when not given: so many sequences of full length fit at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParams:
    """All that decides an engine's command line. Ports are TCP ports; advertise_host is what the reader of our KV dials
    (in a pod `$(POD_IP)`). kv_proxy: base URL of a CONNECT proxy for reading remote KV, or empty."""

    type: EngineType
    role: Role
    model: str
    served_name: str
    block_size: int
    max_context_tokens: int
    max_sequences: int
    kv_blocks: int | None = None
    chunk_tokens: int | None = None
    host: str = "0.0.0.0"
    http_port: int = HTTP_PORT
    kv_port: int = KV_PORT
    advertise_host: str = "127.0.0.1"
    accelerators: int = 0
    gpu_memory_percent: int = 90
    kv_connector: KVConnector = KVConnector.CLAMPING
    connector_dir: str = CONNECTOR_MOUNT
    kv_proxy: str = ""
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[EnvVar, ...] = ()
    python: str = "python"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to run. `env` keeps references to Secrets; `env_values` is for a process on this machine."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[EnvVar, ...]

    def env_values(self) -> dict[str, str]:
        """The environment as plain strings. Raises InvalidInput if one comes from a Secret."""
        for variable in self.env:
            if variable.value_from is not None:
                raise InvalidInput(
                    f"spec.engine.env[{variable.name}].valueFrom",
                    variable.value_from.secret_key_ref.name,
                    "a Secret can only be read in a cluster; give `value` when running local processes",
                )
        return {variable.name: variable.value for variable in self.env}


def engine_params(
    deployment: PDDDeployment,
    role: Role,
    *,
    host: str = "0.0.0.0",
    http_port: int = HTTP_PORT,
    kv_port: int = KV_PORT,
    advertise_host: str = "$(POD_IP)",
    kv_proxy: str = "",
    connector_dir: str = CONNECTOR_MOUNT,
    python: str = "python",
) -> EngineParams:
    """Merge spec.engine with the role's overrides: lists are appended, the rest replaces."""
    spec = deployment.spec
    base, over = spec.engine, deployment.role(role).engine
    return EngineParams(
        type=base.type,
        role=role,
        model=model_argument(spec.model),
        served_name=served_names(spec.model)[0],
        block_size=spec.model.kv.block_size,
        max_context_tokens=spec.model.max_context_tokens,
        max_sequences=over.max_sequences or base.max_sequences,
        kv_blocks=over.kv_blocks or base.kv_blocks,
        chunk_tokens=over.chunk_tokens or base.chunk_tokens,
        host=host,
        http_port=http_port,
        kv_port=kv_port,
        advertise_host=advertise_host,
        accelerators=deployment.role(role).accelerator.count,
        gpu_memory_percent=over.gpu_memory_percent or base.gpu_memory_percent,
        kv_connector=base.kv_connector,
        connector_dir=connector_dir,
        kv_proxy=kv_proxy,
        extra_args=base.args + over.args,
        extra_env=merge_env(base.env, over.env),
        python=python,
    )


def engine_command(params: EngineParams) -> EngineCommand:
    """The command line of one engine. Raises InvalidInput for an engine type that is not built yet."""
    if params.type is EngineType.REFERENCE:
        return _reference(params)
    if params.type is EngineType.VLLM:
        return _vllm(params)
    raise InvalidInput(
        "spec.engine.type", params.type.value, "not built yet; use reference or vllm", reason="EngineNotBuilt"
    )


def capabilities(type_: EngineType, kv_connector: KVConnector = KVConnector.CLAMPING) -> EngineCapabilities:
    """What engines of this type keep. Raises InvalidInput for a type that is not built yet."""
    if type_ is EngineType.REFERENCE:
        return EngineCapabilities(clamps_remote_kv=True, position_keyed_sampling=True, greedy_portable=True)
    if type_ is EngineType.VLLM:
        return EngineCapabilities(
            clamps_remote_kv=kv_connector is KVConnector.CLAMPING, position_keyed_sampling=False, greedy_portable=True
        )
    raise InvalidInput("spec.engine.type", type_.value, "not built yet; use reference or vllm", reason="EngineNotBuilt")


def kv_layout(deployment: PDDDeployment) -> KVLayout:
    """The KV law of the model. The reference engine's bytes per token are known. Raises InvalidInput if unknown."""
    kv = deployment.spec.model.kv
    per_token = kv.bytes_per_token
    if per_token is None:
        if deployment.spec.engine.type is not EngineType.REFERENCE:
            raise InvalidInput(
                "spec.model.kv.bytesPerToken",
                None,
                "give the KV bytes of one token: 2 x layers x KV heads x head size x bytes of a value",
            )
        per_token = REFERENCE_KV.bytes_per_token
    return KVLayout(bytes_per_token=per_token, state_bytes=kv.state_bytes, block_size=kv.block_size)


def served_names(model: ModelSpec) -> tuple[str, ...]:
    """Names that clients may use; the first is the one that engines know."""
    return model.served_names or (model.name,)


def model_argument(model: ModelSpec) -> str:
    """What the engine is told to load: a folder under /models, a hub name, or the model's own name."""
    source = model.source
    if source.persistent_volume_claim is not None:
        return "/".join(part for part in (MODEL_MOUNT, source.persistent_volume_claim.path.strip("/")) if part)
    if source.host_path is not None or source.image is not None:
        return MODEL_MOUNT
    if source.uri is not None:
        return source.uri.removeprefix("hf://")
    return model.name


def tokenizer_name(deployment: PDDDeployment) -> str:
    """What the router loads: `bytes`, or a folder with tokenizer.json."""
    model = deployment.spec.model
    if model.tokenizer:
        return model.tokenizer
    return "bytes" if deployment.spec.engine.type is EngineType.REFERENCE else model_argument(model)


def kv_port_range(type_: EngineType, kv_port: int = KV_PORT) -> tuple[int, int]:
    """First and last TCP port on which an engine's KV is read."""
    return (kv_port, kv_port + UCX_PORTS) if type_ is EngineType.VLLM else (kv_port, kv_port)


def merge_env(base: tuple[EnvVar, ...], over: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Both lists; a later variable of the same name replaces the earlier one in its place."""
    merged = {variable.name: variable for variable in (*base, *over)}
    return tuple(merged.values())


def connector_source() -> str:
    """Text of the clamping connector for vLLM, to be put on the engine's PYTHONPATH as pdd_connector.py."""
    return resources.files("pdd.api").joinpath("assets", CONNECTOR_FILE).read_text()


def _reference(p: EngineParams) -> EngineCommand:
    blocks = p.kv_blocks or CONTEXTS_PER_REFERENCE_ENGINE * -(-p.max_context_tokens // p.block_size)
    args = [
        *("--role", p.role.slug, "--host", p.host, "--port", str(p.http_port), "--kv-port", str(p.kv_port)),
        *("--advertise-host", p.advertise_host, "--served-model-name", p.served_name),
        *("--block-size", str(p.block_size), "--num-blocks", str(blocks)),
        *("--max-model-len", str(p.max_context_tokens), "--max-num-seqs", str(p.max_sequences)),
    ]
    if p.chunk_tokens is not None:
        args += ["--chunk-tokens", str(p.chunk_tokens)]
    if p.kv_proxy:
        args += ["--kv-proxy", p.kv_proxy]
    return EngineCommand((p.python, "-m", "pdd.engine.reference"), (*args, *p.extra_args), p.extra_env)


def _vllm(p: EngineParams) -> EngineCommand:
    if p.kv_proxy:
        raise InvalidInput(
            "spec.endpoint.capture", "Connect", "vLLM cannot dial through a CONNECT proxy; use Redirect in the PDDLink"
        )
    transfer: dict[str, object] = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if p.role is Role.PREFILL else "kv_consumer",
        "kv_buffer_device": "cuda" if p.accelerators else "cpu",
    }
    env = [
        EnvVar(name="VLLM_HOST_IP", value=p.advertise_host),
        EnvVar(name="VLLM_NIXL_SIDE_CHANNEL_HOST", value=p.advertise_host),
        EnvVar(name="VLLM_NIXL_SIDE_CHANNEL_PORT", value=str(p.kv_port)),
        EnvVar(name="UCX_TCP_PORT_RANGE", value=f"{p.kv_port + 1}-{p.kv_port + UCX_PORTS}"),
        EnvVar(name="VLLM_NO_USAGE_STATS", value="1"),
        EnvVar(name="DO_NOT_TRACK", value="1"),
    ]
    # The line carries TCP only. P and RLD stand side by side: with accelerators UCX may choose RDMA there.
    if not p.accelerators:
        env.append(EnvVar(name="UCX_TLS", value="tcp,self"))
    elif p.role is Role.MAIN_DECODE:
        env.append(EnvVar(name="UCX_TLS", value="tcp,self,cuda_copy"))
    if p.model.startswith("/"):
        env += [EnvVar(name="HF_HUB_OFFLINE", value="1"), EnvVar(name="TRANSFORMERS_OFFLINE", value="1")]
    if p.kv_connector is KVConnector.CLAMPING:
        transfer |= {"kv_connector": "PddNixlConnector", "kv_connector_module_path": "pdd_connector"}
        env.append(EnvVar(name="PYTHONPATH", value=p.connector_dir))
    args = [
        *("--model", p.model, "--served-model-name", p.served_name, "--host", p.host, "--port", str(p.http_port)),
        *("--max-model-len", str(p.max_context_tokens), "--block-size", str(p.block_size)),
        *("--max-num-seqs", str(p.max_sequences), "--seed", "0"),
    ]
    if p.chunk_tokens is not None:
        args += ["--max-num-batched-tokens", str(p.chunk_tokens)]
    if p.kv_blocks is not None:
        args += ["--num-gpu-blocks-override", str(p.kv_blocks)]
    if p.accelerators:
        args += ["--tensor-parallel-size", str(p.accelerators)]
        args += ["--gpu-memory-utilization", f"{p.gpu_memory_percent / 100:.2f}"]
    args += ["--kv-transfer-config", json.dumps(transfer, separators=(",", ":"), sort_keys=True)]
    return EngineCommand(
        (p.python, "-m", "vllm.entrypoints.openai.api_server"),
        (*args, *p.extra_args),
        merge_env(tuple(env), p.extra_env),
    )
