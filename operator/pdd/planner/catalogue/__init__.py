"""Accelerators and models: data files with sources, and what follows from them."""

from pdd.planner.catalogue.entries import BITS_OF_PRECISION, PRECISION_OF_BITS, PRECISIONS, Chip, ModelEntry
from pdd.planner.catalogue.files import get_chip, get_model, load_chips, load_models

__all__ = [
    "BITS_OF_PRECISION",
    "PRECISIONS",
    "PRECISION_OF_BITS",
    "Chip",
    "ModelEntry",
    "get_chip",
    "get_model",
    "load_chips",
    "load_models",
]
