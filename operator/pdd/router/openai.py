"""An OpenAI request body to what is asked. Pure; raises BadRequest, which names the field. No pydantic: it is hot."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from pdd.api.config import RouterConfig
from pdd.common.errors import InvalidInput, PDDError
from pdd.common.show import shown
from pdd.engine.adapters.features import FEATURES, IGNORED, MIN_TOKENS, Treatment, is_neutral, strictest
from pdd.engine.tokenizers import Tokenizer

DEFAULT_COMPLETION_TOKENS = 16
"""What OpenAI's completions give when max_tokens is left out; chat goes on to the end of the context."""
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
_LENGTH = frozenset({"max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids"})
_SAMPLING = frozenset({"temperature", "top_p", "top_k", "seed"})
_SHAPE = frozenset({"stream", "stream_options", "return_token_ids", "include_stop_str_in_output"})
_STREAM_OPTIONS = frozenset({"include_usage", "continuous_usage_stats", "include_obfuscation"})
_PLAIN = frozenset({"model", "prompt", "messages", "add_generation_prompt"}) | _LENGTH | _SAMPLING | _SHAPE


class BadRequest(PDDError):
    """The client's mistake. `status`: HTTP status. `param`: the field. `code`: OpenAI's error code."""

    reason = "BadRequest"

    def __init__(self, param: str | None, message: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


class Seeds(Protocol):
    """Gives a seed for a sampled request that names none."""

    def __call__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """One checked request. prompt: ids. sampling: fields that engines get verbatim. pinned, resumable: see Task."""

    chat: bool
    model: str
    prompt: array[int]
    max_tokens: int
    min_tokens: int
    sampling: Mapping[str, Any]
    stops: tuple[str, ...]
    include_stop: bool
    stop_ids: frozenset[int]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    pinned: bool
    resumable: bool


def parse_body(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(None, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest(None, "the body must be a JSON object")
    return body


def parse_ask(body: Mapping[str, Any], *, chat: bool, config: RouterConfig, tokenizer: Tokenizer, seeds: Seeds) -> Ask:
    """Check all fields. Cost: linear in the prompt, in C (one pass to ids, one for their range)."""
    model = _model(body, config)
    treatments, extra = _features(body, config)
    prompt = _chat_prompt(body, tokenizer) if chat else _prompt(body, tokenizer)
    max_tokens = _max_tokens(body, len(prompt), config.max_context_tokens, chat=chat)
    temperature = _number(body, "temperature", 1.0, 0.0, 2.0)
    top_k = _integer(body, "top_k", -1, low=-1)
    seed = body.get("seed")
    if seed is not None:
        seed = _integer(body, "seed", 0, low=-(1 << 63), high=(1 << 64) - 1)
    capabilities = config.capabilities
    sampling: dict[str, Any] = {"temperature": temperature}
    if temperature > 0:
        sampling["top_p"] = _number(body, "top_p", 1.0, 0.0, 1.0, above=True)
        if top_k > 0:
            sampling["top_k"] = top_k
        if capabilities.position_keyed_sampling:
            seed = seeds() if seed is None else seed
        else:
            treatments.append(Treatment.PINNED)
        if seed is not None:
            sampling["seed"] = seed
    else:
        _number(body, "top_p", 1.0, 0.0, 1.0, above=True)
        if not capabilities.greedy_portable:
            treatments.append(Treatment.PINNED)
    stop_ids = _ids(body, "stop_token_ids")
    ignore_eos = _flag(body, "ignore_eos")
    if stop_ids:
        sampling["stop_token_ids"] = sorted(stop_ids)
    if ignore_eos:
        sampling["ignore_eos"] = True
    elif tokenizer.eos_token_id >= 0:
        stop_ids |= {tokenizer.eos_token_id}
    sampling.update(extra)
    stream = _flag(body, "stream")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options", f"stream_options: {shown(options)}: must be an object")
    for name in options:
        if name not in _STREAM_OPTIONS:
            where = f"stream_options.{shown(name)[1:-1]}"
            raise BadRequest(where, f"{where}: the router does not know this field; leave it out", code="unknown_field")
    treatment = strictest(treatments)
    return Ask(
        chat=chat,
        model=model,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=_integer(body, "min_tokens", 0, low=0, high=max_tokens),
        sampling=sampling,
        stops=_stops(body),
        include_stop=_flag(body, "include_stop_str_in_output"),
        stop_ids=stop_ids,
        stream=stream,
        include_usage=_flag(options, "include_usage", "stream_options."),
        continuous_usage=_flag(options, "continuous_usage_stats", "stream_options."),
        return_token_ids=_flag(body, "return_token_ids"),
        pinned=treatment in (Treatment.PINNED, Treatment.STATEFUL),
        resumable=treatment is not Treatment.STATEFUL,
    )


def _model(body: Mapping[str, Any], config: RouterConfig) -> str:
    model = body.get("model")
    known = ", ".join(config.served_model_names)
    if not isinstance(model, str):
        raise BadRequest("model", f"model: {shown(model)}: must be a string; have {known}")
    if model not in config.served_model_names:
        message = f"model: {shown(model)}: not served here; have {known}"
        raise BadRequest("model", message, status=404, code="model_not_found")
    return model


def _features(body: Mapping[str, Any], config: RouterConfig) -> tuple[list[Treatment], dict[str, Any]]:
    """(treatments of the fields in use, fields to pass on). Unknown fields are refused: silence would be a lie."""
    treatments: list[Treatment] = []
    extra: dict[str, Any] = {}
    for name, value in body.items():
        if name in _PLAIN and name != "min_tokens":
            continue
        feature = MIN_TOKENS if name == "min_tokens" else FEATURES.get(name)
        if feature is None:
            if name in IGNORED or value is None:
                continue
            raise BadRequest(name, f"{name}: the router does not know this field; leave it out", code="unknown_field")
        if is_neutral(feature, value):
            continue
        treatment = feature.treatment(config.engine)
        if treatment is Treatment.REFUSED:
            raise BadRequest(
                name,
                f"{name}: {shown(value)}: not supported with engine type {config.engine.value}; leave it out",
                code="unsupported_field",
            )
        treatments.append(treatment)
        if name != "min_tokens":
            extra[name] = _sendable(name, value)
    return treatments, extra


def _sendable(name: str, value: Any) -> Any:
    """A value that goes on to the engines as it is: JSON must be able to say it again."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise BadRequest(name, f"{name}: {shown(value)}: {str(error).lower()}; nest it less deeply") from error
    return value


def _prompt(body: Mapping[str, Any], tokenizer: Tokenizer) -> array[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        ids = array("I", tokenizer.encode(prompt))
        if not ids:
            raise BadRequest("prompt", "prompt: '': must not be empty")
        return ids
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt", "prompt: must be one string or one list of token ids, not empty")
    if isinstance(prompt[0], str | list):
        raise BadRequest("prompt", f"prompt: {len(prompt)} prompts: send one prompt a request")
    return _checked_ids(prompt, "prompt", tokenizer.vocab_size)


def _checked_ids(values: list[Any], field: str, vocab_size: int) -> array[int]:
    try:
        ids = array("I", values)
    except (TypeError, OverflowError):
        ids = array("I")
    if not ids or max(ids) >= vocab_size:
        wrong = next((v for v in values if type(v) is not int or not 0 <= v < vocab_size), None)
        raise BadRequest(field, f"{field}: {shown(wrong)}: must be a token id from 0 to {vocab_size - 1}")
    return ids


def _chat_prompt(body: Mapping[str, Any], tokenizer: Tokenizer) -> array[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages", "messages: must be a list of messages, not empty")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadRequest(f"messages[{index}]", f"messages[{index}]: must be an object with role and content")
        if message.get("tool_calls"):
            raise BadRequest(f"messages[{index}].tool_calls", "tool calls are not supported yet; leave them out")
    prompted = body.get("add_generation_prompt", True)
    if not isinstance(prompted, bool):
        raise BadRequest("add_generation_prompt", f"add_generation_prompt: {shown(prompted)}: must be true or false")
    try:
        return array("I", tokenizer.apply_chat_template(messages, add_generation_prompt=prompted))
    except InvalidInput as error:
        raise BadRequest(error.field, error.message) from error


def _max_tokens(body: Mapping[str, Any], prompt_tokens: int, context: int, *, chat: bool) -> int:
    if prompt_tokens >= context:
        raise BadRequest(
            "messages" if chat else "prompt",
            f"the prompt has {prompt_tokens} tokens; the context is {context} tokens, output included: shorten it",
            code="context_length_exceeded",
        )
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    if body.get(name) is None:
        return context - prompt_tokens if chat else min(DEFAULT_COMPLETION_TOKENS, context - prompt_tokens)
    wanted = _integer(body, name, 1, low=1)
    if prompt_tokens + wanted > context:
        raise BadRequest(
            name,
            f"{name}: {wanted}: with the prompt's {prompt_tokens} tokens it exceeds the context of {context} tokens",
            code="context_length_exceeded",
        )
    return wanted


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
        raise BadRequest("stop", f"stop: {shown(stop)}: must be a string or a list of strings")
    if len(stops) > MAX_STOPS or any(not one or len(one) > MAX_STOP_CHARS for one in stops):
        raise BadRequest("stop", f"stop: at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARS} characters")
    return tuple(stops)


def _ids(body: Mapping[str, Any], name: str) -> frozenset[int]:
    value = body.get(name)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or len(value) > 256 or not all(type(one) is int and one >= 0 for one in value):
        raise BadRequest(name, f"{name}: must be a list of at most 256 token ids")
    return frozenset(value)


def _flag(body: Mapping[str, Any], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequest(prefix + name, f"{prefix}{name}: {shown(value)}: must be true or false")
    return value


def _integer(body: Mapping[str, Any], name: str, default: int, *, low: int, high: int | None = None) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or value < low or (high is not None and value > high):
        span = f"at least {low}" if high is None else f"from {low} to {high}"
        raise BadRequest(name, f"{name}: {shown(value)}: must be an integer {span}")
    return value


def _number(
    body: Mapping[str, Any], name: str, default: float, low: float, high: float, *, above: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    good = type(value) in (int, float) and low <= value <= high and not (above and value == low)
    if not good:
        bound = f"above {low:g}" if above else f"at least {low:g}"
        raise BadRequest(name, f"{name}: {shown(value)}: must be a number {bound} and at most {high:g}")
    return float(value)
