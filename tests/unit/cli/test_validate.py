"""`pdd validate`: exit codes, places on standard error, one JSON document on standard output."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pdd.cli.validate import MAX_FILE_BYTES, run
from pdd.common.errors import InvalidInput

SAMPLES = Path(__file__).parents[3] / "crds" / "samples"
BAD = """\
apiVersion: pdd.dev/v1alpha1
kind: PDDDeployment
metadata: {name: tiny}
spec:
  linkRef: {name: b}
  model: {name: t, maxContextToken: 5}
"""


def test_a_valid_file_gives_zero_and_says_what_it_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(SAMPLES / "minimal.yaml")], as_json=False) == 0
    out, err = capsys.readouterr()
    assert out == "valid: PDDLink site-b, PDDDeployment tiny\n" and err == ""


def test_an_invalid_file_gives_two_with_place_field_value_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    assert run([str(path)], as_json=False) == 2
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"{path}:6:20: error: spec.model.maxContextToken (5) is not a known field in PDDDeployment tiny",
        "  fix  did you mean maxContextTokens?",
    ]
    assert out == "invalid, 1 error: PDDDeployment tiny\n"


def test_json_is_one_document_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    assert run([str(path)], as_json=True) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == "" and document["apiVersion"] == "pdd.dev/validate/v1" and document["valid"] is False
    assert document["problems"] == [
        {
            "file": str(path),
            "line": 6,
            "column": 20,
            "object": "PDDDeployment tiny",
            "field": "spec.model.maxContextToken",
            "value": "5",
            "problem": "is not a known field",
            "remedy": "did you mean maxContextTokens?",
            "reason": "InvalidSpec",
            "severity": "Error",
        }
    ]


def test_standard_input_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert run(["-"], as_json=False) == 2
    assert "-:6:20: error" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe\x00", b"x" * (MAX_FILE_BYTES + 1)], ids=["absent", "binary", "huge"]
)
def test_an_unreadable_file_is_wrong_usage(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "f.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput):
        run([str(path)], as_json=False)


def test_validating_loads_no_kubernetes_and_no_server_packages() -> None:
    """The command must work where only pydantic, PyYAML and typer are installed."""
    script = (
        "import sys; sys.argv = ['pdd', 'validate', sys.argv[1]]\n"
        "from pdd.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "heavy = {'kubernetes', 'kopf', 'aiohttp', 'uvicorn', 'numpy', 'cryptography', 'httpx'} & set(sys.modules)\n"
        "print(code, sorted(heavy))"
    )
    made = subprocess.run(
        [sys.executable, "-c", script, str(SAMPLES / "minimal.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.stdout.splitlines()[-1] == "0 []", made.stderr
