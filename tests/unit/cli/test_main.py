"""The command's frame: help, version, exit codes, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdd import __version__
from pdd.cli import main as command
from pdd.common.errors import EngineError, Forbidden, InvalidInput, PDDError, TimedOut, Unreachable

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    def run(*words: str, program: str = "pdd") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [program, *words])
        with pytest.raises(SystemExit) as end:
            command.main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def test_pdd_alone_is_a_short_help_with_examples(invoke: Invoke) -> None:
    _, out, err = invoke()
    text = out + err
    assert "pdd validate crds/samples/full.yaml" in text and "Exit codes:" in text
    commands = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert 8 <= len(commands) <= 16, "one line a command"
    assert len(text.splitlines()) - len(commands) <= 20 and "\x1b" not in text


def test_version(invoke: Invoke) -> None:
    assert invoke("--version") == (0, f"pdd {__version__}\n", "")


def test_as_a_kubectl_plugin_the_usage_says_so(invoke: Invoke) -> None:
    _, out, _ = invoke("validate", "--help", program="/usr/bin/kubectl-pdd")
    assert out.startswith("Usage: kubectl pdd validate")


@pytest.mark.parametrize("words", [("vlidate",), ("validate",), ("validate", "--nope", "x"), ("link", "create")])
def test_wrong_usage_is_two(invoke: Invoke, words: tuple[str, ...]) -> None:
    code, out, err = invoke(*words)
    assert (code, out) == (2, "") and "Traceback" not in err


def test_a_misspelt_command_is_answered_with_the_nearest(invoke: Invoke) -> None:
    assert "validate" in invoke("vlidate")[2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("--x", 1, "give 2"), 2),
        (Unreachable("no answer"), 3),
        (Forbidden("no right"), 3),
        (TimedOut("too slow"), 124),
        (EngineError("broke"), 1),
        (PDDError("other"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_no_traceback(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, error: PDDError, code: int
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("pdd.cli.validate.run", fail)
    got, out, err = invoke("validate", "x.yaml")
    assert (got, out) == (code, "")
    assert err.startswith("error: ") and "Traceback" not in err
    if isinstance(error, InvalidInput):
        assert err == "error: --x: 1\nfix:   give 2\n"


def test_a_fault_of_our_own_writes_the_traceback_into_a_file(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr("pdd.cli.validate.run", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = invoke("validate", "x.yaml")
    assert code == 1 and err.startswith("error: RuntimeError: boom\nfix:")
    (log,) = tmp_path.iterdir()
    assert str(log) in err and "Traceback" in log.read_text()


def test_debug_shows_the_traceback_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr("pdd.cli.validate.run", fail)
    monkeypatch.setattr(sys, "argv", ["pdd", "validate", "x.yaml", "--debug"])
    with pytest.raises(RuntimeError, match="boom"):
        command.main()


def test_an_interrupt_is_130(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdd.cli.validate.run", fail)
    assert invoke("validate", "x.yaml")[0] == 130


@pytest.mark.parametrize("words", [(), ("validate",), ("link", "create"), ("bench", "handoff")])
def test_help_is_a_command_too(invoke: Invoke, words: tuple[str, ...]) -> None:
    assert invoke("help", *words) == invoke(*words, "--help")
    assert invoke("help", *words)[0] == 0


def test_what_is_wrong_with_a_file_is_not_called_a_fix(invoke: Invoke, tmp_path: Path) -> None:
    wrong = ((b"\xff\xfe\x00", "is not UTF-8"), (b"a: [", "is not YAML"), (b"a: 1", "holds no PDDDeployment"))
    for text, words in wrong:
        file = tmp_path / "wrong.yaml"
        file.write_bytes(text)
        command_words = ("validate",) if b"\xff" in text else ("up",)
        code, _, err = invoke(*command_words, str(file))
        assert code == 2 and "fix:" not in err and f"why:   {words}" in err
