"""From the sample to processes: what is started where, and that both ends agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdd.api.config import EndpointConfig, GatewayConfig, RouterConfig, load_config
from pdd.cli.runner.plan import StackPlan, count_ports, plan_stack
from pdd.cli.runner.spec import load_local_spec
from pdd.cli.runner.stack import write_files
from pdd.common.errors import InvalidInput

SAMPLE = Path(__file__).parents[3] / "crds" / "samples" / "demo.yaml"


def edited(tmp_path: Path, change: Any) -> Path:
    link, deployment = yaml.safe_load_all(SAMPLE.read_text())
    change(link, deployment)
    path = tmp_path / "edited.yaml"
    path.write_text(yaml.safe_dump_all([link, deployment]))
    return path


def planned(folder: Path, file: Path = SAMPLE) -> StackPlan:
    spec = load_local_spec(file)
    return plan_stack(spec, router_port=8080, ports=list(range(20_000, 20_000 + count_ports(spec))), folder=folder)


def test_the_sample_becomes_three_engines_both_ends_the_line_and_the_router(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    names = [process.name for process in plan.processes]
    assert names == ["p-0", "rld-0", "md-0", "gateway", "line", "endpoint-md-0", "router"]
    md = next(process for process in plan.processes if process.name == "md-0")
    assert md.argv[md.argv.index("--kv-proxy") + 1] == f"http://127.0.0.1:{plan.endpoints[0].kv_port}"
    rld = next(process for process in plan.processes if process.name == "rld-0")
    assert "--kv-proxy" not in rld.argv, "relay decode stands beside prefill: its KV does not take the line"


def test_every_port_is_used_once(tmp_path: Path) -> None:
    def more(link: Any, deployment: Any) -> None:
        deployment["spec"]["roles"] = {role: {"replicas": 2} for role in ("prefill", "relayDecode", "mainDecode")}

    plan = planned(tmp_path, edited(tmp_path, more))
    ports = [port for engine in plan.engines for port in (engine.port, engine.kv_port)]
    ports += [port for endpoint in plan.endpoints for port in (endpoint.kv_port, endpoint.http_port)]
    assert len(set(ports)) == len(ports) == 16
    assert count_ports(plan.spec) == 20
    assert not set(ports) & {int(url.rpartition(":")[2]) for url in (plan.gateway_url, plan.line_url)}


def test_the_files_are_what_the_processes_read_and_the_ends_agree(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    write_files(plan, tmp_path)
    router = load_config(RouterConfig, tmp_path / "router.json")
    gateway = load_config(GatewayConfig, tmp_path / "gateway.json")
    endpoint = load_config(EndpointConfig, tmp_path / "endpoint-md-0.json")
    line = next(process for process in plan.processes if process.name == "line")
    assert router.gateway == f"http://127.0.0.1:{gateway.http_port}"
    assert router.allow_overrides
    assert endpoint.gateway == line.argv[line.argv.index("--listen") + 1]
    assert f"127.0.0.1:{gateway.line_port}" == line.argv[line.argv.index("--to") + 1]
    assert line.argv[line.argv.index("--mbps") + 1] == "100" and line.argv[line.argv.index("--rtt-ms") + 1] == "20"
    kv_port = plan.engines[0].kv_port
    assert gateway.allow == (f"127.0.0.1/32:{kv_port}-{kv_port}",)
    for tls in (gateway.tls, endpoint.tls):
        for path in (tls.cert, tls.key, tls.ca):
            assert Path(path).read_bytes().startswith(b"-----BEGIN")
        assert Path(tls.key).stat().st_mode & 0o077 == 0
    assert gateway.tls.peer_name == plan.tls_names["endpoint-tls"]
    assert endpoint.tls.peer_name == plan.tls_names["gateway-tls"]


def test_the_line_can_be_changed_from_the_command(tmp_path: Path) -> None:
    spec = load_local_spec(SAMPLE).with_line(50, 40)
    assert (spec.link.spec.line.capacity_mbps, spec.link.spec.line.rtt_ms) == (50, 40)
    assert spec.link.spec.rate_cap_mbps == 47, "the cap keeps its share"
    assert load_local_spec(SAMPLE).with_line(None, None).link.spec.rate_cap_mbps == 95


@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        (lambda link, d: d["spec"]["linkRef"].update(name="other"), "spec.linkRef.name", "it holds: site-b"),
        (lambda link, d: d["spec"]["engine"].update(type="vllm"), "spec.engine.type", "local processes"),
        (lambda link, d: d.update(kind="Deployment"), "FILE", "holds no PDDDeployment"),
        (lambda link, d: d["spec"]["model"].update(maxTokens=3), "spec.model.maxTokens", "mean maxContextTokens?"),
    ],
)
def test_a_file_that_cannot_run_here_says_why(tmp_path: Path, change: Any, field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_local_spec(edited(tmp_path, change))
    assert caught.value.field == field and remedy in str(caught.value)


def test_direct_transport_is_refused(tmp_path: Path) -> None:
    def direct(link: Any, deployment: Any) -> None:
        link["spec"] = {k: v for k, v in link["spec"].items() if k != "endpoint"} | {"transport": "Direct"}

    with pytest.raises(InvalidInput, match="use Gateway"):
        planned(tmp_path, edited(tmp_path, direct))


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), ("- 1", "is not an object")])
def test_a_broken_file_is_told_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        load_local_spec(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        load_local_spec(tmp_path / "none.yaml")


def test_the_configuration_is_camel_case(tmp_path: Path) -> None:
    assert "servedModelNames" in json.loads(planned(tmp_path).files["router.json"])


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("kvBlocks", "kvBlokcs", "did you mean kvBlocks?"),
        ("capacityMbps: 100", "capacityMbps: 0", "spec.line.capacityMbps"),
        ("capacityMbps: 100", 'capacityMbps: "100"', "without quotes"),
        ("kind: PDDLink", "kind: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("name: tiny  ", "name: [tiny]  ", "spec.model.name"),
    ],
)
def test_a_wrong_file_is_explained_as_validate_does(tmp_path: Path, before: str, after: str, words: str) -> None:
    text = SAMPLE.read_text()
    assert before in text
    file = tmp_path / "wrong.yaml"
    file.write_text(text.replace(before, after))
    with pytest.raises(InvalidInput) as caught:
        load_local_spec(file)
    assert words in f"{caught.value.field}: {caught.value.remedy}"
    said = f"{caught.value.field} {caught.value.value} {caught.value.remedy}"
    assert str(file) in said  # the message itself cuts a long value
