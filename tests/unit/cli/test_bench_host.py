"""What the machine did besides."""

import os
import subprocess
import sys

import pytest

from pdd.cli.bench.host import HostSample, busy_seconds, compare_samples, cpu_seconds, sample_host, stalled_seconds


def test_counters_are_read_from_the_kernels_text() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    assert busy_seconds(stat) == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / ticks)
    assert stalled_seconds("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n") == 2.5
    assert stalled_seconds("") is None


def test_others_are_what_is_busy_and_not_ours() -> None:
    use = compare_samples(HostSample(0.0, 100.0, 10.0, 1.0), HostSample(10.0, 115.0, 18.0, 3.0))
    assert (use.own_cores, use.other_cores, use.stalled) == (0.8, 0.7, 0.2)


def test_a_process_that_works_is_seen_as_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before = sample_host([child.pid])
        while cpu_seconds(child.pid) < before.own_s + 0.2:
            pass
        after = sample_host([child.pid])
        assert after.own_s - before.own_s >= 0.2
        assert compare_samples(before, after).own_cores > 0
    finally:
        child.kill()
        child.wait()
    assert cpu_seconds(child.pid) == 0.0
