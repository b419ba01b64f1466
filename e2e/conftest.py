"""One pair of clusters for the whole session.

Without a container engine the tests that need clusters are skipped, and one line of the summary says why; with
PDD_E2E=required that is a failure. Clusters that were up before the session are used and left as they are
(`python -m e2e.clusters up`); those that the session made are deleted at its end, unless PDD_KEEP_CLUSTERS=1.
The line: PDD_E2E_RTT_MS (20), PDD_E2E_MBPS (1000). PDD_E2E_AS_IS=1 tests what is installed: nothing is built or loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from e2e import clusters as sites
from e2e import engine, prepare
from e2e.shell import say
from e2e.system import NOTES, oracle, pytest_runtest_makereport, system, whole
from e2e.wan.client import Wan

__all__ = ["clusters", "oracle", "pytest_runtest_makereport", "system", "wan", "whole"]

ORDER = (
    "test_clusters", "test_chat", "test_advice", "test_bad_http", "test_bad_input", "test_trace", "test_lifecycle",
    "test_faults",
)  # fmt: skip
"""The ground first, then what needs a whole system; what breaks things comes last."""

_REASON = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Iterator[sites.Clusters]:
    """Both clusters, ready, with the project's images loaded and the WAN between them."""
    before = sites.find()
    line = sites.Line(
        rtt_ms=float(os.environ.get("PDD_E2E_RTT_MS", "20")), mbps=float(os.environ.get("PDD_E2E_MBPS", "1000"))
    )
    try:
        pair = sites.up(line)
    except engine.NoEngine as error:
        reason = f"e2e: no container engine can run here: {error}"
        if os.environ.get("PDD_E2E") == "required":
            pytest.fail(reason, pytrace=False)
        request.config.stash[_REASON] = reason
        pytest.skip(reason)
    except BaseException:
        if before is None and os.environ.get("PDD_KEEP_CLUSTERS") != "1":
            sites.down()  # the half that was made must not outlive the run
        raise
    try:
        if os.environ.get("PDD_E2E_AS_IS") != "1":
            pair.load(*prepare.project_images().build())
        yield pair
    finally:
        if before is None and os.environ.get("PDD_KEEP_CLUSTERS") != "1":
            sites.down()
        else:
            say("the clusters stay up; `python -m e2e.clusters down` deletes them")


@pytest.fixture
def wan(clusters: sites.Clusters) -> Iterator[Wan]:
    """The line, whole before and after each test, and with its settings as they were."""
    before = clusters.wan.stats()["settings"]
    clusters.wan.heal()
    yield clusters.wan
    clusters.wan.heal()
    clusters.wan.set(**before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the clusters bears the mark e2e, and gets time for their creation: a cold one builds Kubernetes."""
    for item in items:
        if "clusters" in getattr(item, "fixturenames", ()):
            item.add_marker("e2e")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600, func_only=True))
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if reason := config.stash.get(_REASON, ""):
        terminalreporter.write_line(reason, yellow=True)
    if lines := config.stash.get(NOTES, []):
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
