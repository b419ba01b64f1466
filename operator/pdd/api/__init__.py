"""The custom resources and the wire configurations, as frozen pydantic models."""
