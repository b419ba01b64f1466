"""A running PDDDeployment as a fleet: engines' times from a calibration or from data sheets, the line, the rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pdd.api.accelerators import memory_mib
from pdd.api.deployment import AbnormalPolicy, Role
from pdd.api.engines import engine_params
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.errors import InvalidInput
from pdd.planner.calibration_file import times_from_object
from pdd.planner.catalogue import PRECISION_OF_BITS, Chip, ModelEntry, get_chip, get_model
from pdd.planner.fleet import Fleet, LineSpec, Pool, RuleSpec, Sla, Way
from pdd.planner.kvlaw import KVLaw
from pdd.planner.roofline import estimate_times
from pdd.planner.timing import EngineTimes

MIB = 1024 * 1024
CHUNK_TOKENS = 2048
"""Of engines whose spec leaves it open; vLLM's own default."""
ROLE_KEYS = {Role.PREFILL: "prefill", Role.RELAY_DECODE: "relayDecode", Role.MAIN_DECODE: "mainDecode"}


@dataclass(frozen=True, slots=True)
class Running:
    """calibrated: all three roles' times are measured ones."""

    fleet: Fleet
    sla: Sla
    calibrated: bool


def build_running(
    deployment: PDDDeployment, link: PDDLink, relay_engines: int, calibration: str, *, rtt_s: float = 0.0
) -> Running:
    """The fleet as it is now. relay_engines: RLD engines that run. calibration: JSON, an EngineCalibration of all roles
    or an object with one for each of prefill, relayDecode, mainDecode; "": none. rtt_s: measured on the line, 0: as
    the link states it.

    Raises InvalidInput that names what is missing: no calibration, and an accelerator or model that no catalogue knows.
    """
    documents = _read_calibration(calibration)
    counts = {
        Role.PREFILL: deployment.role(Role.PREFILL).replicas,
        Role.RELAY_DECODE: relay_engines,
        Role.MAIN_DECODE: deployment.role(Role.MAIN_DECODE).replicas,
    }
    pools = {role: Pool(counts[role], _times(deployment, role, documents)) for role in ROLE_KEYS}
    spec, sla = deployment.spec, deployment.spec.sla
    router, abnormal = spec.router, spec.router.abnormal_traffic
    fleet = Fleet(
        way=Way.PDD,
        prefill=pools[Role.PREFILL],
        relay=pools[Role.RELAY_DECODE],
        main=pools[Role.MAIN_DECODE],
        line=LineSpec(
            capacity_bps=link.spec.rate_cap_mbps * 1e6,
            rtt_s=rtt_s or link.spec.line.rtt_ms / 1e3,
            streams=link.spec.streams,
        ),
        kv=_kv_law(deployment, documents),
        rules=RuleSpec(
            relay_threshold_s=router.relay_threshold_ms / 1e3,
            handoff_mode=router.handoff_mode,
            one_shot_limit_tokens=router.one_shot_limit_tokens,
            abnormal_enabled=abnormal.policy is AbnormalPolicy.RELAY_TO_END,
            abnormal_max_output_tokens=abnormal.max_output_tokens,
            abnormal_min_transfer_s=abnormal.min_transfer_ms / 1e3,
            relay_sessions_per_engine=router.limits.max_relay_sessions,
        ),
        block_tokens=spec.model.kv.block_size,
    )
    promised = Sla(_seconds(sla.ttft_p90_ms), _seconds(sla.ttft_p99_ms), _seconds(sla.tpot_p99_ms))
    return Running(fleet, promised, all(role in documents for role in ROLE_KEYS))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _read_calibration(text: str) -> Mapping[Role, Mapping[str, Any]]:
    if not text:
        return {}
    where = "annotation pdd.dev/calibration"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInput(where, text[:40], f"is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidInput(where, text[:40], "must be a document of `pdd calibrate --out`, or one for each role")
    if "kind" in document:
        return dict.fromkeys(ROLE_KEYS, document)
    for key, value in document.items():
        if key not in ROLE_KEYS.values() or not isinstance(value, dict):
            raise InvalidInput(f"{where}: {key}", str(value)[:40], f"use {', '.join(ROLE_KEYS.values())}")
    return {role: document[key] for role, key in ROLE_KEYS.items() if key in document}


def _times(deployment: PDDDeployment, role: Role, documents: Mapping[Role, Mapping[str, Any]]) -> EngineTimes:
    params = engine_params(deployment, role)
    if role in documents:
        times = times_from_object(documents[role], f"annotation pdd.dev/calibration, {ROLE_KEYS[role]}")
        return replace(times, max_sequences=params.max_sequences)
    accelerator = deployment.role(role).accelerator
    field = f"spec.roles.{ROLE_KEYS[role]}.accelerator"
    if accelerator.count < 1:
        remedy = "its times are unknown: give an accelerator, or annotate pdd.dev/calibration (pdd calibrate --out)"
        raise InvalidInput(f"{field}.count", accelerator.count, remedy)
    chip = _find_chip(accelerator.type, f"{field}.type")
    known_mib = memory_mib(accelerator.type, accelerator.memory_mib)
    if known_mib is not None:
        chip = replace(chip, memory_bytes=float(known_mib * MIB))
    entry, precision = _find_model(deployment)
    chunk_tokens = params.chunk_tokens or CHUNK_TOKENS
    return estimate_times(chip, accelerator.count, entry, precision, chunk_tokens, params.max_sequences)


def _find_chip(type_: str, field: str) -> Chip:
    """By the accelerator's name as specs and device plugins write it."""
    name = type_.strip().upper().replace(" ", "-").removeprefix("NVIDIA-").removeprefix("ASCEND-")
    short = name.rsplit("-", 1)[0] if name.endswith("G") and "-" in name else name
    for candidate in (name, f"Ascend-{name}", short, name.replace("RTX", "RTX-").replace("--", "-")):
        try:
            return get_chip(candidate)
        except InvalidInput as error:
            failure = error
    raise InvalidInput(field, type_, failure.remedy)


def _find_model(deployment: PDDDeployment) -> tuple[ModelEntry, str]:
    model = deployment.spec.model
    try:
        entry = get_model(model.name)
    except InvalidInput as error:
        raise InvalidInput("spec.model.name", model.name, error.remedy) from None
    precision = PRECISION_OF_BITS.get(model.bits_per_weight)
    if precision is None:
        raise InvalidInput("spec.model.bitsPerWeight", model.bits_per_weight, "data sheets know 16, 8 and 4")
    return entry, precision


def _kv_law(deployment: PDDDeployment, documents: Mapping[Role, Mapping[str, Any]]) -> KVLaw:
    """The spec's bytes, as the router uses them; else what a calibrated engine told; else the catalogue's."""
    kv = deployment.spec.model.kv
    if kv.bytes_per_token:
        return KVLaw(float(kv.bytes_per_token), state_bytes=float(kv.state_bytes))
    for document in documents.values():
        told = document.get("kv_bytes_per_token")
        if isinstance(told, int | float) and not isinstance(told, bool) and told > 0:
            return KVLaw(float(told))
    entry, precision = _find_model(deployment)
    return entry.kv_law(precision)
