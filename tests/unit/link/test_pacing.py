"""The rate cap, with a clock of our own."""

from __future__ import annotations

import pytest

from pdd.link.pacing import HEADROOM, TokenBucket


def send_for(bucket: TokenBucket, seconds: float, frame: int, start: float = 0.0) -> int:
    now, sent = start, 0
    while now < start + seconds:
        wait = bucket.wait_s(now)
        if wait:
            now += wait
            continue
        bucket.charge(frame)
        sent += frame
    return sent


@pytest.mark.parametrize("rate_mbps", [10, 100, 1000, 10_000])
@pytest.mark.parametrize("frame", [1000, 16 * 1024, 256 * 1024])
def test_the_rate_is_kept_whatever_the_frame_size(rate_mbps: int, frame: int) -> None:
    bucket = TokenBucket(rate_mbps * 1_000_000, 0.0)
    seconds = max(1.0, 200 * frame * 8 / (rate_mbps * 1e6))
    sent = send_for(bucket, seconds, frame)
    expected = rate_mbps * 1e6 / 8 * HEADROOM * seconds
    assert expected * 0.97 < sent < expected * 1.05 + 2 * frame


def test_idle_time_is_not_saved_up_beyond_the_burst() -> None:
    bucket = TokenBucket(100_000_000, 0.0)
    burst = send_for(bucket, 0.0001, 1000, start=100.0)
    assert burst < 100e6 / 8 * 0.03


def test_fast_bytes_are_charged_and_delay_bulk() -> None:
    bucket = TokenBucket(8_000_000, 0.0)
    bucket.charge(1_000_000)
    assert bucket.wait_s(0.0) == pytest.approx(1.0, rel=0.05)


def test_no_cap_means_no_wait() -> None:
    bucket = TokenBucket(0, 0.0)
    bucket.charge(10**12)
    assert bucket.wait_s(0.0) == 0.0
    assert not bucket.capped


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket(8_000_000, 5.0)
    bucket.charge(10_000_000)
    assert bucket.wait_s(5.0) == bucket.wait_s(5.0) > 9
