"""Errors, clock, tasks, configuration, logging and metrics helpers shared by all parts."""
