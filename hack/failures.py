"""Prints what failed, from pytest's JUnit files: the last lines of a long log then say which test and why.

usage: failures.py FILE.xml...
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

MOST = 12
LINES = 25


def list_failures(path: Path) -> list[tuple[str, str]]:
    """(test, the end of its report) for each test of one file that failed or could not start."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        for kind in ("failure", "error"):
            for problem in case.findall(kind):
                report = (problem.text or problem.get("message") or "").strip().splitlines()
                found.append((f"{case.get('classname')}::{case.get('name')}", "\n".join(report[-LINES:])))
    return found


def main() -> None:
    """Entry point. A file that is not there, or not whole, is no reason to hide the others."""
    for name in sys.argv[1:]:
        try:
            failures = list_failures(Path(name))
        except (OSError, ElementTree.ParseError):
            continue
        seen: set[str] = set()
        for test, report in failures[:MOST]:
            print(f"-- {test}")
            if report not in seen:
                print(report)
            seen.add(report)
        if len(failures) > MOST:
            print(f"-- and {len(failures) - MOST} more")


if __name__ == "__main__":
    main()
