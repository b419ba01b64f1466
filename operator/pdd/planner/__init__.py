"""Sizing and simulation. Not built yet: see the README table of what works."""
