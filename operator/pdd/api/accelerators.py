"""Memory of known accelerators, in MiB as their drivers report it (below the product's round figure)."""

from __future__ import annotations

from difflib import get_close_matches

MEMORY_MIB: dict[str, int] = {
    "T4": 15360,
    "L4": 23034,
    "A10": 23028,
    "A30": 24576,
    "L20": 46068,
    "L40S": 46068,
    "RTX4090": 24564,
    "A100-40G": 40960,
    "A100-80G": 81920,
    "A800": 81920,
    "H800": 81559,
    "H100": 81559,
    "H20": 97871,
    "H20-141G": 143771,
    "H200": 143771,
    "B200": 183359,
    "B300": 275040,
    "MI300X": 196592,
    "MI325X": 262128,
    "910B": 65536,
    "910C": 131072,
}


def memory_mib(type_: str, stated_mib: int | None) -> int | None:
    """Memory of one accelerator in MiB: the stated one, else the table's; None for an unknown type."""
    if stated_mib is not None:
        return stated_mib
    return MEMORY_MIB.get(_normal(type_))


def nearest_types(type_: str) -> list[str]:
    """Up to three listed types whose names are near."""
    return get_close_matches(_normal(type_), MEMORY_MIB, n=3, cutoff=0.5)


def _normal(type_: str) -> str:
    return type_.strip().upper().replace(" ", "").replace("NVIDIA-", "").replace("ASCEND-", "").replace("ASCEND", "")
