"""`pdd validate`: reads files, prints problems as `file:line:column`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from pdd.api.checks import Severity
from pdd.api.validate import Problem, Report, validate_texts
from pdd.common.errors import InvalidInput

MAX_FILE_BYTES = 4 * 1024 * 1024
OUTPUT_VERSION = "pdd.dev/validate/v1"


def run(files: list[str], *, as_json: bool) -> int:
    """Validate the files together. Returns 0, or 2 if there is an error. Raises InvalidInput for an unreadable file."""
    report = validate_texts([(name, read_text(name)) for name in files])
    if as_json:
        print(json.dumps(to_json(report)))
    else:
        for problem in report.problems:
            print(format_problem(problem), file=sys.stderr)
        print(format_summary(report))
    return 0 if report.valid else 2


def read_text(name: str) -> str:
    """Text of a file, or of standard input for `-`. Raises InvalidInput."""
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if name == "-" else _read_bounded(Path(name))
    except OSError as error:
        raise InvalidInput("FILE", name, f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput("FILE", name, "is larger than 4 MiB; give a file of Kubernetes objects")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("FILE", name, "is not UTF-8 text") from error


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def to_json(report: Report) -> dict[str, object]:
    """The report as a JSON document."""
    return {
        "apiVersion": OUTPUT_VERSION,
        "valid": report.valid,
        "documents": [asdict(document) for document in report.documents],
        "problems": [asdict(problem) for problem in report.problems],
    }


def format_problem(problem: Problem) -> str:
    """Two lines: place, field, value, what is wrong; and the remedy."""
    word = "error" if problem.severity is Severity.ERROR else "warning"
    field = problem.field or problem.object
    value = f" ({problem.value})" if problem.value else ""
    glue = " " if problem.problem.startswith(("is ", "breaks ", "holds ")) else ": "
    what = f"{field}{value}{glue}{problem.problem}" if field else problem.problem
    of = f" in {problem.object}" if problem.object and problem.field else ""
    return f"{problem.file}:{problem.line}:{problem.column}: {word}: {what}{of}\n  fix  {problem.remedy}"


def format_summary(report: Report) -> str:
    """The last line."""
    checked = [document for document in report.documents if document.checked]
    others = len(report.documents) - len(checked)
    names = ", ".join(f"{document.kind} {document.name}" for document in checked) or "no object of ours"
    left = f"; {others} of other kinds not checked" if others else ""
    errors = sum(problem.severity is Severity.ERROR for problem in report.problems)
    warnings = len(report.problems) - errors
    verdict = "valid" if report.valid else f"invalid, {errors} error{'s' if errors != 1 else ''}"
    extra = f", {warnings} warning{'s' if warnings != 1 else ''}" if warnings else ""
    return f"{verdict}{extra}: {names}{left}"
