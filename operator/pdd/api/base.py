"""Base of all models: frozen, camelCase on the wire, unknown keys refused unless a reader asks otherwise."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Frozen value with camelCase aliases. A misspelt key is an error, never silently ignored."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_enum_values=False
    )
