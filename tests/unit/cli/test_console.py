from __future__ import annotations

import io

import pytest

from pdd.cli.console import Console, table, wants_colour
from pdd.cli.demo_show import StreamView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("tty", "env", "expected"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (False, {"TERM": "xterm"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_only_where_it_is_wanted(tty: bool, env: dict[str, str], expected: bool) -> None:
    assert wants_colour(tty, env) is expected


def test_talk_and_result_go_their_own_ways_and_a_pipe_gets_no_escape() -> None:
    err, out = io.StringIO(), io.StringIO()
    console = Console(err=err, out=out, env={})
    console.say("talk", "red")
    console.result("result")
    assert (err.getvalue(), out.getvalue()) == ("talk\n", "result\n")


def test_the_stream_starts_a_line_when_the_producer_changes() -> None:
    err = io.StringIO()
    view = StreamView(Console(err=err, out=io.StringIO(), env={}))
    for producer, text in (("P", "a"), ("RLD", "b"), ("RLD", "c\nd"), ("MD", "e\x07")):
        view(producer, text, 0)
    view.end()
    assert err.getvalue() == "  P   |a\n  RLD |bc\n      |d\n  MD  |e\N{MIDDLE DOT}\n"


def test_a_terminal_sees_colours() -> None:
    err = Terminal()
    view = StreamView(Console(err=err, out=io.StringIO(), env={"TERM": "xterm"}))
    view("MD", "x", 1)
    assert "\x1b[36mx\x1b[0m" in err.getvalue()


def test_columns_are_aligned() -> None:
    assert table([["", "PDD"], ["first token", "1 ms"]], indent="") == "              PDD\nfirst token  1 ms"
