"""The KV law: bytes of a prompt, and of what an engine lacks of it."""

from __future__ import annotations

import pytest

from pdd.api.config import KVLayout
from pdd.policy.kv import MissingKV, compute_kv_bytes, compute_missing

LAYOUT = KVLayout(bytes_per_token=100, block_size=16)
WITH_STATE = KVLayout(bytes_per_token=100, block_size=16, state_bytes=7)


@pytest.mark.parametrize(("tokens", "size"), [(0, 0), (1, 1600), (16, 1600), (17, 3200)])
def test_kv_is_counted_in_whole_blocks(tokens: int, size: int) -> None:
    assert compute_kv_bytes(LAYOUT, tokens) == size


def test_missing_is_what_lies_behind_the_cached_blocks() -> None:
    assert compute_missing(LAYOUT, 50, 2) == MissingKV(tokens=18, blocks=2, bytes_=3200)


def test_nothing_is_missing_when_all_is_cached() -> None:
    assert compute_missing(LAYOUT, 32, 2) == MissingKV(0, 0, 0)
    assert compute_missing(LAYOUT, 32, 99) == MissingKV(0, 0, 0)


def test_a_state_crosses_whenever_anything_does() -> None:
    assert compute_missing(WITH_STATE, 17, 1).bytes_ == 1607
    assert compute_missing(WITH_STATE, 16, 1).bytes_ == 0


def test_missing_and_cached_add_up_to_the_whole() -> None:
    for tokens in range(1, 200):
        for cached in range(tokens // 16 + 1):
            missing = compute_missing(LAYOUT, tokens, cached)
            assert missing.bytes_ + cached * 1600 == compute_kv_bytes(LAYOUT, tokens)
            assert missing.tokens + cached * 16 == tokens
