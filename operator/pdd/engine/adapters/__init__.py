"""Adapters: how each type of engine is spoken to. The router knows engines through these alone."""

from __future__ import annotations

from pdd.api.config import EngineType
from pdd.common.errors import InvalidInput
from pdd.engine.adapters.base import Adapter, Answer, Chunk, EngineCall, Handle, Usage
from pdd.engine.adapters.sse import EventSplitter
from pdd.engine.adapters.vllm import VLLMAdapter

__all__ = ["Adapter", "Answer", "Chunk", "EngineCall", "EventSplitter", "Handle", "Usage", "adapter_for"]


def adapter_for(engine: EngineType, model: str) -> Adapter:
    """The adapter for `engine`. Raises InvalidInput for a type that the router cannot drive yet."""
    if engine in (EngineType.REFERENCE, EngineType.VLLM):
        return VLLMAdapter(model)
    raise InvalidInput(
        "engine", engine.value, "the router does not support this engine yet; use engine type reference or vllm"
    )
