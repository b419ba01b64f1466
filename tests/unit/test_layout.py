"""The source root is called `operator`, like a module of the standard library: it must stay a bare sys.path entry."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "operator"


def test_operator_folder_is_never_a_package_nor_holds_tests() -> None:
    offenders = [p.name for p in SOURCES.iterdir() if p.suffix == ".py"]
    assert offenders == [], f"{offenders} directly in operator/ shadow the standard library's module"


def test_standard_library_operator_still_imports_with_the_root_on_the_path() -> None:
    code = "import operator, collections; assert operator.itemgetter(0)([7]) == 7; import pdd; print(pdd.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr


def test_files_stay_small() -> None:
    """A file of 500 lines wants splitting."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    ).stdout.split()
    long = {name: n for name in tracked if (n := (ROOT / name).read_text().count("\n")) > 500}
    assert long == {}


def test_no_bare_create_task() -> None:
    """A task that nobody holds may vanish in mid-flight: pdd.common.tasks.spawn keeps it."""
    allowed = SOURCES / "pdd" / "common" / "tasks.py"
    made = re.compile(r"asyncio\.(create_task|ensure_future)\(|loop\.create_task\(")
    others = (path for path in SOURCES.rglob("*.py") if path != allowed)
    bare = [str(path.relative_to(ROOT)) for path in others if made.search(path.read_text())]
    assert bare == []


def test_no_path_of_one_machine() -> None:
    """Nothing tracked names a folder that exists on one machine only."""
    pattern = re.compile("|".join(["/" + "work/", "/" + "farm/", "/" + "root/"]))
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    ).stdout.split()
    named = []
    for name in tracked:
        try:
            text = (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if pattern.search(text):
            named.append(name)
    assert named == []
