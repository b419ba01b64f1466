"""`pdd demo` from end to end as a user starts it: real engines, both ends of the link, an emulated line, the router."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "pdd.cli.main")
SMALL = ("--prompt-tokens", "2400", "--output-tokens", "220", "--mbps", "50", "--rtt-ms", "20")


@pytest.fixture
def temp(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder for the runs of one test; nothing of ours may be in it or alive afterwards."""
    yield tmp_path
    assert list(tmp_path.glob("pdd-run-*")) == []
    assert children_of(tmp_path) == []


def children_of(temp: Path) -> list[str]:
    """Command lines of live processes that were started with this temporary folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(temp) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def environment(temp: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temp)}


@pytest.mark.slow
def test_the_demo_keeps_its_promises_and_leaves_nothing(temp: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "demo", "--json", *SMALL],
        capture_output=True,
        text=True,
        timeout=110,
        env=environment(temp),
        cwd=ROOT,
    )
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    # The limit of 300 ms is the demo's own, for a machine of its own; here other tests may hold the cores. What must
    # hold anywhere is that relaying hides most of the transfer.
    assert [sentence for sentence in document["unmet"] if "second token" not in sentence] == [], done.stderr
    assert done.returncode == (0 if document["met"] else 1)
    assert document["pipeline"] == "P-RLD-MD" and document["identical"] is True
    made = document["producers"]
    assert made["P"] == 1 and made["RLD"] > 0 and made["MD"] > 0
    assert sum(made.values()) == document["tokens"] == 220
    assert document["handoff"]["payload_bytes"] < document["kv_bytes_missing"] / 100
    naive = document["naive"]
    assert naive["pipeline"] == "P-MD" and naive["identical"] is True and naive["producers"]["RLD"] == 0
    assert naive["second_token_ms"] > 1000, "2,400 tokens of KV take more than a second over 50 Mbit/s"
    assert document["second_token_ms"] < naive["second_token_ms"] / 2
    for record in (document, naive):
        assert 0.95 * record["kv_bytes_missing"] <= record["kv_bytes_on_line"] <= 1.05 * record["kv_bytes_missing"]
    follow_up = document["requests"][1]
    assert follow_up["pipeline"] == "P-MD" and follow_up["identical"] is True
    assert follow_up["kv_bytes_on_line"] < document["kv_bytes_on_line"] / 4


def started(temp: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(temp),
        cwd=ROOT,
    )


def test_up_serves_until_ctrl_c_and_leaves_nothing(temp: Path) -> None:
    with started(temp, "up", "--json", "--port", "0") as process:
        try:
            assert process.stdout is not None
            stack = json.loads(process.stdout.readline())
            import httpx

            body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
            answer = httpx.post(f"{stack['router']}/v1/chat/completions", json=body, timeout=30, trust_env=False)
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] >= 1
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()


def test_an_engine_that_dies_is_the_cause_that_is_told(temp: Path) -> None:
    with started(temp, "up", "--json", "--port", "0") as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            stack = json.loads(process.stdout.readline())
            port = stack["engines"]["md-0"].rpartition(":")[2]
            (engine,) = [p for p in psutil.Process(process.pid).children() if port in p.cmdline()]
            engine.kill()
            assert process.wait(20) == 1
            assert "md-0 was ended by SIGKILL" in process.stderr.read()
        finally:
            process.kill()
    logs = list(temp.glob("pdd-run-*/logs/md-0.log"))
    assert logs, "the logs of a failed run stay"
    for folder in temp.glob("pdd-run-*"):
        assert [entry.name for entry in folder.iterdir()] == ["logs"], "and nothing else of it does"
        subprocess.run(["rm", "-r", str(folder)], check=True)


def test_killing_the_command_ends_its_processes(temp: Path) -> None:
    with started(temp, "up", "--json", "--port", "0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(children_of(temp)) == 8
        process.kill()
        process.wait(5)
    deadline = time.monotonic() + 5
    while children_of(temp) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children_of(temp) == []
    done = subprocess.run(
        [*COMMAND, "doctor", "--only", "local.leftovers"], env=environment(temp), cwd=ROOT, timeout=30
    )
    assert done.returncode == 0
    with started(temp, "up", "--json", "--port", "0") as again:  # the next run removes what the killed one left
        assert again.stdout is not None
        again.stdout.readline()
        assert len(list(temp.glob("pdd-run-*"))) == 1
        again.send_signal(signal.SIGTERM)
        assert again.wait(20) == 130
