"""`pdd line`: verdict, table, document, exit codes; its numbers are tested with `pdd.planner.line_sizing`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pdd.cli.main import app
from pdd.cli.plan import PlanOptions, read_spec
from pdd.planner.catalogue import load_chips

REPOSITORY = Path(__file__).parents[3]
STANDARD = REPOSITORY / "docs" / "examples" / "plan-standard.yaml"
VLLM = REPOSITORY / "crds" / "samples" / "vllm.yaml"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["line", *map(str, arguments)])


def document(*arguments: str | Path) -> tuple[dict[str, Any], int]:
    done = call(*arguments, "--json")
    return json.loads(done.stdout), done.exit_code


def test_the_smallest_line_that_lands_in_time_is_named() -> None:
    found, code = document(STANDARD, "--within", "5s")
    assert code == 0
    assert found["kind"] == "LineSizing"
    ports = {port["capacity_bps"]: port for port in found["ports"]}
    assert list(ports) == [10e9, 20e9, 25e9, 40e9, 100e9]
    assert [port["enough"] for port in ports.values()] == [False, False, False, True, True]
    assert found["chosen"] == ports[40e9]
    assert ports[40e9]["transfer_p99_s"] <= 5
    assert ports[40e9]["price_per_h"] == pytest.approx(2.0)
    assert ports[25e9]["transfer_p99_s"] is None, "it does not keep up"
    shown = call(STANDARD, "--within", "5s").stdout.splitlines()
    assert shown[0].startswith("line: 40 Gbit/s is the smallest that lands 99 % of KV transfers within 5 s")
    assert max(map(len, shown)) <= 120


def test_the_promise_is_the_limit_and_streams_are_the_remedy() -> None:
    """The standard case promises 3 s; four streams of 200 Mbit/s are too slow for the largest one in a hundred."""
    found, code = document(STANDARD)
    assert (code, found["within_s"], found["chosen"]) == (1, 3.0, None)
    assert found["neededStreams"] > found["streams"] == 4
    done = call(STANDARD)
    assert done.exit_code == 1
    said = "infeasible: no line asked about lands 99 % of KV transfers within 3 s: one transfer needs "
    assert done.stdout.startswith(f"{said}{found['neededStreams']} streams")


def test_as_many_streams_as_it_says_make_it_feasible(tmp_path: Path) -> None:
    """The 99th percentile alone on the line: beside others it takes longer, so the P99 of all wants some more."""
    needed = document(STANDARD)[0]["neededStreams"]
    more = tmp_path / "more.yaml"
    more.write_text(STANDARD.read_text().replace("streams: 4", f"streams: {needed + 2}"))
    found, code = document(more)
    assert code == 0, found["ports"]
    assert found["chosen"]["transfer_p99_s"] <= 3


def test_hits_save_bytes_and_recomputing_is_weighed() -> None:
    few, many = (document(STANDARD, "--hit", hit, "--within", "5s")[0] for hit in ("50 %", "95 %"))
    assert many["prefixCacheSaving"] > 1.5 * few["prefixCacheSaving"]
    assert many["recompute"]["cached_tokens"] > few["recompute"]["cached_tokens"]
    for cross in many["recompute"]["crossovers"]:
        assert cross["bytes"] * 8 / cross["below_bps"] == pytest.approx(cross["recompute_s"], rel=1e-4)
    assert "prefix caches at main decode: without them" in call(STANDARD).stdout


def test_a_deployment_needs_no_prices() -> None:
    """The size of a line does not rest on them; what is assumed is said."""
    found, code = document(VLLM, "--rate", "4/s", "--within", "10s")
    assert code in (0, 1)
    assert {port["price_per_h"] for port in found["ports"]} == {0.0}
    assert any("no price of the line" in text for text in found["assumptions"])
    priced, _ = document(VLLM, "--rate", "4/s", "--line-price", "730/month")
    assert max(port["price_per_h"] for port in priced["ports"]) > 0
    assert "assumed: load: 4 requests/s" in call(VLLM, "--rate", "4/s").stderr


def test_the_examples_of_the_help_run() -> None:
    """Of `pdd plan` and `pdd line`, as far as the question is read: an example that is refused helps nobody."""
    for name in ("plan", "line"):
        text = CliRunner().invoke(app, [name, "--help"]).stdout
        examples = re.findall(rf"pdd {name} (\S+\.yaml)([^\n]*)", text)
        assert examples, text
        for file, rest in examples:
            words = [word for word in rest.split() if word not in ("--explain", "--json")]
            done = CliRunner().invoke(app, ["line", str(REPOSITORY / file), *words, "--json"])
            assert done.exit_code in (0, 1), f"{name} {file} {rest}: {done.output}"
    asked = PlanOptions(file=str(VLLM), prices=("H20=1.50/h",), line_price="700/month", rate="4/s")
    assert read_spec(asked, load_chips(None)).prices.chips == {"H20": 1.5}


@pytest.mark.parametrize(
    ("within", "said"),
    [
        ("1", "has no unit: write '1 s' or '1 ms'"),
        ("0 s", "must be more than 0"),
        ("-2 s", "--within"),
        ("soon", "--within"),
    ],
)
def test_a_bad_time_is_refused(within: str, said: str) -> None:
    done = call(STANDARD, "--within", within)
    assert done.exit_code != 0
    assert said in f"{done.output} {done.exception}"
