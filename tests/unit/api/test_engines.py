"""Command lines of engines, as the engines' own parsers take them."""

from __future__ import annotations

import json

import pytest
from tests.unit.api.samples import deployment

from pdd.api.config import EngineType
from pdd.api.deployment import KVConnector, Role
from pdd.api.engines import (
    REFERENCE_KV,
    capabilities,
    connector_source,
    engine_command,
    engine_params,
    kv_layout,
    kv_port_range,
    model_argument,
    served_names,
    tokenizer_name,
)
from pdd.common.errors import InvalidInput
from pdd.engine.reference import model_info

VLLM = {"engine": {"type": "vllm"}, "model": {"name": "Qwen/Q", "kv": {"bytesPerToken": 262144}}}


def options(args: tuple[str, ...]) -> dict[str, str]:
    """`--x v` pairs."""
    return dict(zip(args[::2], args[1::2], strict=True))


def test_the_reference_engine_gets_all_that_its_flags_name() -> None:
    params = engine_params(deployment(), Role.RELAY_DECODE, http_port=9000, kv_port=9001, advertise_host="10.0.0.7")
    made = engine_command(params)
    assert made.command == ("python", "-m", "pdd.engine.reference")
    assert options(made.args) == {
        "--role": "relay-decode",
        "--host": "0.0.0.0",
        "--port": "9000",
        "--kv-port": "9001",
        "--advertise-host": "10.0.0.7",
        "--served-model-name": "tiny",
        "--block-size": "16",
        "--num-blocks": "4096",
        "--max-model-len": "16384",
        "--max-num-seqs": "64",
    }


def test_a_role_replaces_numbers_and_appends_args_and_env() -> None:
    spec = {
        "engine": {"args": ["--step-ms", "5"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        "roles": {
            "mainDecode": {
                "engine": {
                    "args": ["--max-queued", "9"],
                    "env": [{"name": "A", "value": "2"}],
                    "maxSequences": 7,
                    "kvBlocks": 2000,
                    "chunkTokens": 64,
                }
            }
        },
    }
    made = engine_command(engine_params(deployment(spec), Role.MAIN_DECODE, kv_proxy="http://127.0.0.1:15001"))
    flags = options(made.args)
    assert (flags["--max-num-seqs"], flags["--num-blocks"], flags["--chunk-tokens"]) == ("7", "2000", "64")
    assert (flags["--step-ms"], flags["--max-queued"]) == ("5", "9")
    assert flags["--kv-proxy"] == "http://127.0.0.1:15001"
    assert made.env_values() == {"A": "2", "B": "1"}
    other = engine_command(engine_params(deployment(spec), Role.PREFILL))
    assert options(other.args)["--max-num-seqs"] == "64" and other.env_values()["A"] == "1"


def test_a_secret_cannot_become_a_plain_value() -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]
    made = engine_command(engine_params(deployment({"engine": {"env": env}}), Role.PREFILL))
    with pytest.raises(InvalidInput, match=r"TOKEN.*local processes"):
        made.env_values()


@pytest.mark.parametrize(
    ("role", "kv_role"),
    [(Role.PREFILL, "kv_producer"), (Role.RELAY_DECODE, "kv_consumer"), (Role.MAIN_DECODE, "kv_consumer")],
)
def test_vllm_on_the_cpu_is_told_its_kv_role_and_only_tcp(role: Role, kv_role: str) -> None:
    made = engine_command(engine_params(deployment(VLLM), role))
    assert made.command == ("python", "-m", "vllm.entrypoints.openai.api_server")
    flags = options(made.args)
    assert json.loads(flags["--kv-transfer-config"]) == {
        "kv_connector": "PddNixlConnector",
        "kv_connector_module_path": "pdd_connector",
        "kv_role": kv_role,
        "kv_buffer_device": "cpu",
    }
    env = made.env_values()
    assert env["UCX_TLS"] == "tcp,self" and env["PYTHONPATH"] == "/etc/pdd/connector"
    assert (env["VLLM_NIXL_SIDE_CHANNEL_HOST"], env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) == ("$(POD_IP)", "8001")
    low, high = kv_port_range(EngineType.VLLM)
    assert env["UCX_TCP_PORT_RANGE"] == f"{low + 1}-{high}"
    assert "--tensor-parallel-size" not in flags and "--max-num-batched-tokens" not in flags


def test_vllm_on_accelerators_lets_rdma_join_p_and_rld_but_md_uses_tcp() -> None:
    spec = {**VLLM, "roles": {r.value: {"accelerator": {"type": "H20", "count": 2}} for r in Role}}
    made = {role: engine_command(engine_params(deployment(spec), role)) for role in Role}
    assert "UCX_TLS" not in made[Role.PREFILL].env_values()
    assert "UCX_TLS" not in made[Role.RELAY_DECODE].env_values()
    assert made[Role.MAIN_DECODE].env_values()["UCX_TLS"] == "tcp,self,cuda_copy"
    flags = options(made[Role.PREFILL].args)
    assert (flags["--tensor-parallel-size"], flags["--gpu-memory-utilization"]) == ("2", "0.90")
    assert json.loads(flags["--kv-transfer-config"])["kv_buffer_device"] == "cuda"


def test_stock_vllm_gets_its_own_connector_and_promises_no_clamping() -> None:
    spec = {**VLLM, "engine": {"type": "vllm", "kvConnector": "Stock"}}
    made = engine_command(engine_params(deployment(spec), Role.PREFILL))
    transfer = json.loads(options(made.args)["--kv-transfer-config"])
    assert transfer["kv_connector"] == "NixlConnector" and "kv_connector_module_path" not in transfer
    assert "PYTHONPATH" not in made.env_values()
    assert not capabilities(EngineType.VLLM, KVConnector.STOCK).clamps_remote_kv
    assert capabilities(EngineType.VLLM, KVConnector.CLAMPING).clamps_remote_kv


def test_the_users_environment_wins_over_ours() -> None:
    spec = {**VLLM, "engine": {"type": "vllm", "env": [{"name": "UCX_TLS", "value": "tcp,cuda_copy,self"}]}}
    assert engine_command(engine_params(deployment(spec), Role.PREFILL)).env_values()["UCX_TLS"] == "tcp,cuda_copy,self"


def test_vllm_cannot_go_through_a_connect_proxy() -> None:
    with pytest.raises(InvalidInput, match="Redirect"):
        engine_command(engine_params(deployment(VLLM), Role.MAIN_DECODE, kv_proxy="http://127.0.0.1:1"))


def test_sglang_says_that_it_is_not_built_yet() -> None:
    spec = {"engine": {"type": "sglang"}, "model": {"kv": {"bytesPerToken": 1}}}
    with pytest.raises(InvalidInput, match="not built yet") as caught:
        engine_command(engine_params(deployment(spec), Role.PREFILL))
    assert caught.value.reason == "EngineNotBuilt"
    with pytest.raises(InvalidInput, match="not built yet"):
        capabilities(EngineType.SGLANG)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, "Qwen/Q"),
        ({"uri": "hf://org/m"}, "org/m"),
        ({"hostPath": {"path": "/data/m"}}, "/models"),
        ({"image": {"reference": "r/m:1"}}, "/models"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, "/models"),
        ({"persistentVolumeClaim": {"claimName": "c", "path": "/a/b/"}}, "/models/a/b"),
    ],
)
def test_the_engine_loads_from_where_the_source_is_mounted(source: dict[str, object], expected: str) -> None:
    made = deployment({**VLLM, "model": {"name": "Qwen/Q", "kv": {"bytesPerToken": 1}, "source": source}})
    assert model_argument(made.spec.model) == expected
    assert tokenizer_name(made) == expected
    command = engine_command(engine_params(made, Role.PREFILL))
    assert ("HF_HUB_OFFLINE" in command.env_values()) == expected.startswith("/")


def test_names_and_tokenizer_have_defaults() -> None:
    assert served_names(deployment().spec.model) == ("tiny",)
    assert served_names(deployment({"model": {"servedNames": ["a", "b"]}}).spec.model) == ("a", "b")
    assert tokenizer_name(deployment()) == "bytes"
    assert tokenizer_name(deployment({"model": {"tokenizer": "/models/t"}})) == "/models/t"


def test_the_kv_law_of_the_built_in_model_is_the_engines_own() -> None:
    info = model_info()
    assert kv_layout(deployment()) == REFERENCE_KV
    assert info["bytes_per_token"] == REFERENCE_KV.bytes_per_token


def test_the_kv_law_of_another_engine_must_be_given() -> None:
    made = deployment({"engine": {"type": "vllm"}})
    with pytest.raises(InvalidInput, match=r"bytesPerToken"):
        kv_layout(made)
    assert kv_layout(deployment(VLLM)).bytes_per_token == 262144


def test_the_connector_is_plain_python_that_needs_nothing_of_ours() -> None:
    source = connector_source()
    compile(source, "pdd_connector.py", "exec")
    assert "import pdd" not in source and "from pdd" not in source
    assert "class PddNixlConnector" in source
