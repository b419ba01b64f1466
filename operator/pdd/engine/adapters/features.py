"""Which request fields keep a request token-exact when it moves between engines. docs/features.md says it for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pdd.api.config import EngineType


class Treatment(StrEnum):
    """PORTABLE: any engine goes on exactly. PINNED: one engine decodes from the first token; another may replace a dead
    one. STATEFUL: one engine decodes, and nothing can replace it, since the field looks back on the output.
    REFUSED: 400."""

    PORTABLE = "portable"
    PINNED = "pinned"
    STATEFUL = "stateful"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Feature:
    """neutral: values that ask for nothing (the field is then not passed on)."""

    neutral: tuple[object, ...]
    reference: Treatment
    vllm: Treatment

    def treatment(self, engine: EngineType) -> Treatment:
        return self.reference if engine is EngineType.REFERENCE else self.vllm


_PORTABLE, _PINNED, _STATEFUL, _REFUSED = Treatment.PORTABLE, Treatment.PINNED, Treatment.STATEFUL, Treatment.REFUSED

FEATURES: Mapping[str, Feature] = {
    "min_p": Feature((None, 0), _REFUSED, _PORTABLE),
    "logit_bias": Feature((None, {}), _REFUSED, _PORTABLE),
    "allowed_token_ids": Feature((None,), _REFUSED, _PORTABLE),
    "bad_words": Feature((None, []), _REFUSED, _PINNED),
    "presence_penalty": Feature((None, 0), _REFUSED, _STATEFUL),
    "frequency_penalty": Feature((None, 0), _REFUSED, _STATEFUL),
    "repetition_penalty": Feature((None, 1), _REFUSED, _STATEFUL),
    "response_format": Feature((None, {"type": "text"}), _REFUSED, _STATEFUL),
    "structured_outputs": Feature((None,), _REFUSED, _STATEFUL),
    "n": Feature((None, 1), _REFUSED, _REFUSED),
    "best_of": Feature((None, 1), _REFUSED, _REFUSED),
    "use_beam_search": Feature((None, False), _REFUSED, _REFUSED),
    "logprobs": Feature((None, False), _REFUSED, _REFUSED),
    "top_logprobs": Feature((None, 0), _REFUSED, _REFUSED),
    "prompt_logprobs": Feature((None,), _REFUSED, _REFUSED),
    "echo": Feature((None, False), _REFUSED, _REFUSED),
    "suffix": Feature((None, ""), _REFUSED, _REFUSED),
    "tools": Feature((None, []), _REFUSED, _REFUSED),
    "tool_choice": Feature((None, "none", "auto"), _REFUSED, _REFUSED),
    "functions": Feature((None, []), _REFUSED, _REFUSED),
    "function_call": Feature((None, "none", "auto"), _REFUSED, _REFUSED),
    "kv_transfer_params": Feature((None,), _REFUSED, _REFUSED),
    "prompt_embeds": Feature((None,), _REFUSED, _REFUSED),
    "modalities": Feature((None, ["text"]), _REFUSED, _REFUSED),
    "audio": Feature((None,), _REFUSED, _REFUSED),
}
"""Fields beyond the plain ones (temperature, top_p, top_k, seed, stop, stop_token_ids, max_tokens, min_tokens,
ignore_eos, stream, return_token_ids), which every engine that the router drives keeps exact."""

MIN_TOKENS: Feature = Feature((None, 0), _REFUSED, _PORTABLE)
"""`min_tokens` is counted down by the router from call to call."""

IGNORED = frozenset({"user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier",
                     "prompt_cache_key", "request_id", "reasoning_effort", "verbosity"})  # fmt: skip
"""Fields of the public API that change no token."""


def is_neutral(feature: Feature, value: Any) -> bool:
    """Whether `value` asks for nothing. False and 0 are told apart, 1 and 1.0 are not."""
    return any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in feature.neutral)


_RANK = (_PORTABLE, _PINNED, _STATEFUL, _REFUSED)


def strictest(treatments: list[Treatment]) -> Treatment:
    """The treatment of a request is that of its most demanding field."""
    return max(treatments, key=_RANK.index, default=_PORTABLE)
