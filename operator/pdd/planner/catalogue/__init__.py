"""Accelerators and models: data files with sources, and what follows from them."""

from pdd.planner.catalogue.entries import PRECISIONS, Chip, ModelEntry
from pdd.planner.catalogue.files import get_chip, get_model, load_chips, load_models

__all__ = ["PRECISIONS", "Chip", "ModelEntry", "get_chip", "get_model", "load_chips", "load_models"]
