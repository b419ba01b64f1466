"""The operator's own settings, from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pdd.common.errors import InvalidInput
from pdd.controller.desired.pod import Images


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds. `namespaces` empty: all namespaces are watched."""

    images: Images
    namespaces: tuple[str, ...] = ()
    metrics_port: int = 9090
    resync_s: float = 30.0
    concurrency: int = 20
    deletion_deadline_s: float = 300.0
    scaling_poll_s: float = 2.0
    gateway_poll_s: float = 2.0
    advice_poll_s: float = 60.0


def settings_from(env: Mapping[str, str] | None = None) -> Settings:
    """Read PDD_* variables. Raises InvalidInput that names the variable."""
    env = os.environ if env is None else env
    return Settings(
        images=Images(
            router=_image(env, "PDD_IMAGE_ROUTER"),
            link=_image(env, "PDD_IMAGE_LINK"),
            engine=_image(env, "PDD_IMAGE_ENGINE"),
            pull_policy=env.get("PDD_IMAGE_PULL_POLICY", "IfNotPresent"),
        ),
        namespaces=tuple(n.strip() for n in env.get("PDD_WATCH_NAMESPACES", "").split(",") if n.strip()),
        metrics_port=int(_number(env, "PDD_METRICS_PORT", 9090)),
        resync_s=_number(env, "PDD_RESYNC_S", 30.0),
        concurrency=int(_number(env, "PDD_CONCURRENCY", 20)),
        deletion_deadline_s=_number(env, "PDD_DELETION_DEADLINE_S", 300.0),
        scaling_poll_s=_number(env, "PDD_SCALING_POLL_S", 2.0),
        gateway_poll_s=_number(env, "PDD_GATEWAY_POLL_S", 2.0),
        advice_poll_s=_number(env, "PDD_ADVICE_POLL_S", 60.0),
    )


def _image(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise InvalidInput(name, value, "set it to an image reference; the chart pdd-operator does (values images.*)")
    return value


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(name, text, "must be a number") from None
    if value <= 0:
        raise InvalidInput(name, text, "must be greater than 0")
    return value
