"""Looks into the models: which keys are known at a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel


def known_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Names (as in YAML) of the fields at `path` below `model`; empty where any key, or none, is allowed."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):  # an entry of the list that was just entered: the same model
            continue
        current = next((_model_of(f.annotation) for name, f in fields_of(current) if name == part), None)
        if current is None:
            return []
    return [name for name, _ in fields_of(current)]


def fields_of(model: type[BaseModel] | None) -> Iterator[tuple[str, Any]]:
    """(name in YAML, pydantic's FieldInfo) of every field."""
    for name, field in model.model_fields.items() if model is not None else ():
        yield field.alias or name, field


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation: itself, optional, or in a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_of(argument)
        if found is not None:
            return found
    return None
