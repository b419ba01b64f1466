"""A completion's JSON body to a checked request. Pure; raises BadRequest that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdd.common.errors import PDDError
from pdd.common.show import shown
from pdd.engine.reference.sampling import Sampling
from pdd.engine.reference.sequence import RemoteHandle
from pdd.engine.tokenizer import ByteTokenizer

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "logprobs": (None, False),
    "prompt_logprobs": (None,),
    "echo": (None, False),
    "suffix": (None, ""),
    "stop": (None, "", []),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "logit_bias": (None, {}),
    "use_beam_search": (None, False),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
    "prompt_embeds": (None,),
    "structured_outputs": (None,),
    "response_format": (None, {"type": "text"}),
}
"""Fields that this engine knows of and cannot do, with the values at which they ask for nothing."""


class BadRequest(PDDError):
    """A body that cannot be served. `status` is the HTTP status, `param` the field."""

    reason = "BadRequest"

    def __init__(self, param: str | None, message: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request must keep within. capacity_tokens is what all blocks together hold."""

    model_names: tuple[str, ...]
    vocab_size: int
    max_model_len: int
    capacity_tokens: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A checked body. seed is None when the client left it out (the caller picks one)."""

    model: str
    prompt: tuple[int, ...]
    prompt_was_text: bool
    max_tokens: int
    sampling: Sampling
    seeded: bool
    stop_token_ids: frozenset[int]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    export: bool
    remote: RemoteHandle | None


def parse_completion(body: object, bounds: Bounds, tokenizer: ByteTokenizer) -> Completion:
    """Check every field that is known. Unknown fields are ignored, as vLLM does."""
    if not isinstance(body, dict):
        raise BadRequest(None, "the body must be a JSON object")
    check_model(body, bounds.model_names)
    for field, neutral in _NEUTRAL.items():
        value = body.get(field)
        if not any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral):
            raise BadRequest(field, f"{field}: {shown(value)}: this engine does not support it; leave it out")
    prompt = parse_prompt(body.get("prompt"), bounds.vocab_size, tokenizer)
    max_tokens = _integer(body, "max_tokens", 16, low=1)
    _check_length(len(prompt), max_tokens, bounds)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options", f"stream_options: {shown(options)}: must be an object")
    stream = _flag(body, "stream")
    if options and not stream:
        raise BadRequest("stream_options", "stream_options: only allowed with stream: true")
    export, remote = parse_transfer(body.get("kv_transfer_params"))
    top_k = _integer(body, "top_k", 0, low=-1)
    sampling = Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0, above=True),
        top_k=max(top_k, 0),
        seed=_integer(body, "seed", 0, low=-(1 << 63), high=(1 << 64) - 1),
    )
    return Completion(
        model=str(body["model"]) if body.get("model") else bounds.model_names[0],
        prompt=prompt,
        prompt_was_text=_is_text(body.get("prompt")),
        max_tokens=max_tokens,
        sampling=sampling,
        seeded=body.get("seed") is not None,
        stop_token_ids=_token_set(body.get("stop_token_ids")),
        ignore_eos=_flag(body, "ignore_eos"),
        stream=stream,
        include_usage=_flag(options, "include_usage", "stream_options."),
        continuous_usage=_flag(options, "continuous_usage_stats", "stream_options."),
        return_token_ids=_flag(body, "return_token_ids"),
        export=export,
        remote=remote,
    )


def check_model(body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raises a 404 for a model that is not served here; none given means the one that is."""
    model = body.get("model")
    if model is not None and model not in names:
        known = ", ".join(names)
        raise BadRequest(
            "model", f"model: {shown(model)}: not served here; have {known}", status=404, code="model_not_found"
        )


def parse_prompt(prompt: object, vocab_size: int, tokenizer: ByteTokenizer) -> tuple[int, ...]:
    """A string, a list of ids, or a list that holds one of these."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        prompt = tokenizer.encode(prompt)
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt", "prompt: must be a string or a list of token ids, one prompt, not empty")
    return check_ids("prompt", prompt, vocab_size)


def _is_text(prompt: object) -> bool:
    return isinstance(prompt, str) or (isinstance(prompt, list) and isinstance(prompt[0], str))


def check_ids(field: str, ids: list[object], vocab_size: int) -> tuple[int, ...]:
    """Raises BadRequest that names the first id which is none."""
    for index, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise BadRequest(field, f"{field}[{index}]: {shown(token)}: must be a token id from 0 to {vocab_size - 1}")
    return tuple(ids)  # type: ignore[arg-type]  # each is an int: just checked


def parse_transfer(params: object) -> tuple[bool, RemoteHandle | None]:
    """kv_transfer_params -> (keep the KV for a reader, handle to read the prompt's KV from)."""
    if params is None:
        return False, None
    if not isinstance(params, dict):
        raise BadRequest("kv_transfer_params", f"kv_transfer_params: {shown(params)}: must be an object")
    where = "kv_transfer_params."
    export, read = _flag(params, "do_remote_decode", where), _flag(params, "do_remote_prefill", where)
    if not read:
        return export, None
    for name in ("remote_engine_id", "remote_request_id", "remote_host"):
        if not isinstance(params.get(name), str) or not params[name]:
            given = shown(params.get(name))
            raise BadRequest(where + name, f"{where}{name}: {given}: must be the prefill engine's string")
    port = _integer(params, "remote_port", 0, low=1, high=65535, prefix=where)
    tokens = _integer(params, "remote_num_tokens", 0, low=1, prefix=where)
    ids = params.get("remote_block_ids")
    groups = ids if isinstance(ids, list) and all(isinstance(group, list) for group in ids) else None
    if groups is None or len(groups) != 1 or not all(type(b) is int for b in groups[0]):
        raise BadRequest(where + "remote_block_ids", f"{where}remote_block_ids: must be one list of block numbers")
    handle = RemoteHandle(
        params["remote_engine_id"], params["remote_request_id"], params["remote_host"], port, tokens, tuple(groups[0])
    )
    return export, handle


def _check_length(prompt: int, max_tokens: int, bounds: Bounds) -> None:
    if prompt + max_tokens > bounds.max_model_len:
        raise BadRequest(
            "prompt",
            f"prompt: {prompt} tokens and max_tokens: {max_tokens} exceed the context of {bounds.max_model_len} "
            "tokens; shorten either",
            code="context_length_exceeded",
        )
    if prompt + max_tokens > bounds.capacity_tokens:
        raise BadRequest(
            "prompt",
            f"prompt: {prompt} tokens and max_tokens: {max_tokens} exceed the {bounds.capacity_tokens} tokens that "
            "this engine's KV blocks hold; shorten either, or start it with more --num-blocks",
            code="context_length_exceeded",
        )


def _flag(body: Mapping[str, Any], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequest(prefix + name, f"{prefix}{name}: {shown(value)}: must be true or false")
    return value


def _integer(
    body: Mapping[str, Any], name: str, default: int, *, low: int, high: int | None = None, prefix: str = ""
) -> int:
    value = body.get(name)
    if value is None and default >= low:
        return default
    if type(value) is not int or value < low or (high is not None and value > high):
        span = f"at least {low}" if high is None else f"from {low} to {high}"
        raise BadRequest(prefix + name, f"{prefix}{name}: {shown(value)}: must be an integer {span}")
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


def _token_set(value: object) -> frozenset[int]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise BadRequest("stop_token_ids", f"stop_token_ids: {shown(value)}: must be a list of token ids")
    return frozenset(value)
