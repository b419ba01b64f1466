"""The weights file: what the script makes, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pdd.common.errors import InvalidInput
from pdd.engine.reference.config import ModelConfig
from pdd.engine.reference.make_weights import random_arrays
from pdd.engine.reference.weights import WEIGHTS_PATH, load_weights, save_weights

SEED = 27


def test_the_file_is_what_the_script_makes() -> None:
    made = random_arrays(ModelConfig(), SEED)
    with np.load(WEIGHTS_PATH) as file:
        assert set(file.files) == set(made)
        assert all(np.array_equal(file[name], made[name]) for name in made)
    assert WEIGHTS_PATH.stat().st_size < 4 << 20


def test_other_weights_have_another_fingerprint(tmp_path: Path) -> None:
    arrays = random_arrays(ModelConfig(), SEED)
    arrays["head"][0, 0] ^= 1
    save_weights(tmp_path / "w.npz", arrays)
    other = load_weights(ModelConfig(), tmp_path / "w.npz").fingerprint
    assert other != load_weights(ModelConfig()).fingerprint


def test_a_missing_or_misshapen_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"gone\.npz"):
        load_weights(ModelConfig(), tmp_path / "gone.npz")
    arrays = random_arrays(ModelConfig(), SEED)
    arrays["layers.1.out"] = arrays["layers.1.out"][:-1]
    save_weights(tmp_path / "w.npz", arrays)
    with pytest.raises(InvalidInput, match=r"layers\.1\.out"):
        load_weights(ModelConfig(), tmp_path / "w.npz")
