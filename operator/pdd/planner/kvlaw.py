"""The payload law S(u) = sigma0 x min(u, W) + kappa x u, in bytes: what u missing tokens weigh on the line.

kappa: bytes a token over all layers that keep KV for every token. sigma0, W: bytes a token of layers that keep only the
last W tokens (sliding windows); state: constant bytes for each request (linear attention, Mamba). Source: the published
configurations, layer by layer (`pdd.planner.catalogue`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KVLaw:
    """bytes_per_token: kappa. window_bytes_per_token: sigma0, for the last window_tokens. state_bytes: a request."""

    bytes_per_token: float
    window_bytes_per_token: float = 0.0
    window_tokens: int = 0
    state_bytes: float = 0.0


def compute_payload_bytes(
    tokens: float, bytes_per_token: float, window_bytes_per_token: float, window_tokens: float, state_bytes: float
) -> float:
    """Bytes that `tokens` missing tokens weigh; 0 for none (a state is only sent with tokens)."""
    if tokens <= 0:
        return 0.0
    return bytes_per_token * tokens + window_bytes_per_token * min(tokens, window_tokens) + state_bytes


def payload_bytes(law: KVLaw, tokens: float) -> float:
    """`compute_payload_bytes` with the constants of `law`."""
    return compute_payload_bytes(
        tokens, law.bytes_per_token, law.window_bytes_per_token, law.window_tokens, law.state_bytes
    )
