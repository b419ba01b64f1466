"""Measuring an engine over its HTTP API, as the router speaks to it."""
