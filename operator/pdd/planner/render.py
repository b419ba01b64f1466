"""The chosen plan as a PDDDeployment and its PDDLink, ready for `pdd validate` and `kubectl apply`.

Resources that the plan was made from keep all that is theirs: only counts, chips, the relay threshold and the line
change. From a plan file new ones are made; what only their owner knows (image, weights, credentials) is named in
comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from pdd.api.deployment import RelayAutoscaling, Role
from pdd.planner.candidates import Question
from pdd.planner.catalogue import BITS_OF_PRECISION
from pdd.planner.fleet import Fleet, Pool
from pdd.planner.pareto import Candidate
from pdd.planner.spec import Objects

MIB = 1024 * 1024
MAX_NAME = 40


def render_yaml(question: Question, chosen: Candidate, verdict: str = "") -> str:
    """Two YAML documents with a comment that says where they come from."""
    objects = question.spec.objects
    built = _adapt(objects, chosen.fleet) if objects else _make(question, chosen.fleet)
    head = [
        f"# {chosen.label}",
        *(f"# {line}" for line in verdict.splitlines()),
        "# Made by `pdd plan`; check with `pdd validate`, then `kubectl apply`.",
    ]
    if objects is None:
        head += [
            "# To fill in: spec.engine.image and spec.model.source (your engine and weights), and the link's Secret",
            "# (`pdd link create site-b` makes it).",
        ]
    documents = [yaml.safe_dump(body, sort_keys=False, width=120) for body in built]
    return "\n".join(head) + "\n" + "---\n".join(documents)


def _make(question: Question, fleet: Fleet) -> tuple[dict[str, Any], dict[str, Any]]:
    spec, prices = question.spec, question.spec.prices
    name = _object_name(spec.model)
    rules = fleet.rules
    sla = {
        "ttftP90Ms": _milliseconds(spec.sla.ttft_p90_s),
        "ttftP99Ms": _milliseconds(spec.sla.ttft_p99_s),
        "tpotP99Ms": _milliseconds(spec.sla.tpot_p99_s),
    }
    link = {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDLink",
        "metadata": {"name": "site-b"},
        "spec": {
            "member": {"kubeconfigSecretRef": {"name": "site-b"}, "namespace": "pdd"},
            "line": {
                "capacityMbps": _mbps(fleet.line.capacity_bps),
                "rttMs": round(fleet.line.rtt_s * 1000),
                "price": {"currency": prices.currency, "centsPerHour": round(fleet.line.price_per_h * 100)},
            },
            "streams": fleet.line.streams,
        },
    }
    kv = fleet.kv
    state = kv.state_bytes + kv.window_bytes_per_token * kv.window_tokens
    deployment = {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDDeployment",
        "metadata": {"name": name},
        "spec": {
            "linkRef": {"name": "site-b"},
            "model": {
                "name": spec.model,
                "maxContextTokens": _round_up(question.context_tokens, 1024),
                "kv": {
                    "bytesPerToken": math.ceil(kv.bytes_per_token),
                    "stateBytes": math.ceil(state),
                    "blockSize": _block_size(fleet.block_tokens),
                },
                "weightMiB": math.ceil(question.weight_bytes / MIB),
                **({"bitsPerWeight": BITS_OF_PRECISION[question.precision]} if question.precision else {}),
            },
            "engine": {"type": "vllm", "chunkTokens": fleet.prefill.times.prefill.chunk_tokens},
            "roles": {
                Role.PREFILL.value: _role(fleet.prefill),
                Role.RELAY_DECODE.value: _role(fleet.relay),
                Role.MAIN_DECODE.value: _role(fleet.main),
            },
            "router": {
                "relayThresholdMs": round(rules.relay_threshold_s * 1000),
                "handoffMode": rules.handoff_mode.value,
                "oneShotLimitTokens": rules.one_shot_limit_tokens,
            },
            "sla": {key: value for key, value in sla.items() if value is not None},
        },
    }
    return link, deployment


def _role(pool: Pool) -> dict[str, Any]:
    return {
        "replicas": pool.engines,
        "accelerator": {"type": pool.chip, "count": round(pool.accelerators)},
        "engine": {"maxSequences": pool.times.max_sequences},
    }


def _adapt(objects: Objects, fleet: Fleet) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of the resources with the plan written into them; what a cluster added is left out."""
    link, deployment = _own(objects.link), _own(objects.deployment)
    line, bulk = link["spec"]["line"], link["spec"].get("lanes", {}).get("bulk", {})
    after = _mbps(fleet.line.capacity_bps)
    if (bulk.get("rateCapMbps") or line["capacityMbps"]) != after:
        bulk.pop("rateCapMbps", None)
        line["capacityMbps"] = after
        if line.get("price"):
            line["price"]["centsPerHour"] = round(fleet.line.price_per_h * 100)
    roles = deployment["spec"].setdefault("roles", {})
    for role, pool in ((Role.PREFILL, fleet.prefill), (Role.RELAY_DECODE, fleet.relay), (Role.MAIN_DECODE, fleet.main)):
        body = roles.setdefault(role.value, {})
        body["replicas"] = pool.engines
        body.setdefault("accelerator", {}).update(type=pool.chip, count=round(pool.accelerators))
        scaling = body.get("autoscaling")
        if scaling:
            defaults = RelayAutoscaling()
            scaling["minReplicas"] = min(scaling.get("minReplicas", defaults.min_replicas), pool.engines)
            scaling["maxReplicas"] = max(scaling.get("maxReplicas", defaults.max_replicas), pool.engines)
    router = deployment["spec"].setdefault("router", {})
    router["relayThresholdMs"] = round(fleet.rules.relay_threshold_s * 1000)
    return link, deployment


def _own(body: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in body["metadata"].items() if key in kept and value}
    head = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}
    return head | {"spec": deepcopy(body["spec"])}


def _object_name(model: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:MAX_NAME].strip("-")
    return name if name[:1].isalpha() else f"m-{name}".strip("-")


def _block_size(tokens: int) -> int:
    """vLLM's blocks are multiples of 16 tokens."""
    return min(1024, _round_up(tokens, 16))


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _mbps(bps: float) -> int:
    return max(1, round(bps / 1e6))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
