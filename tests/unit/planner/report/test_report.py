"""The report's pictures and page: well formed, complete, without any address, and safe with odd names."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.planner.plan.toy import TEXT, ToyJudge, question_of, spec_of

from pdd.planner.answer import Answer, make_answer
from pdd.planner.report import standalone
from pdd.planner.report.charts import draw_bathtub, draw_cdfs, draw_pareto, draw_radar, draw_timeline
from pdd.planner.report.page import Figure, build_page
from pdd.planner.report.svg import Axis, span_axis


@pytest.fixture(scope="module")
def answer() -> Answer:
    return make_answer(question_of(spec_of()), ToyJudge())


def pictures(answer: Answer) -> list[str]:
    draw = np.random.default_rng(1)
    ways = {name: np.sort(draw.lognormal(mean, 0.5, 2000)) for name, mean in (("PDD", -1.0), ("naive", 0.5))}
    request: dict[str, float | str | None] = {
        "pipeline": "P-RLD-MD",
        "firstTokenS": 0.2,
        "secondTokenS": 0.25,
        "landedS": 1.4,
        "stallS": 0.02,
        "relayTokens": 48.0,
        "doneS": 30.0,
    }
    fleet = answer.search.best.fleet
    return [
        draw_pareto(answer),
        draw_cdfs(ways, 2.0),
        draw_timeline(request),
        draw_timeline(request | {"pipeline": "P-MD", "stallS": None}),
        draw_bathtub(fleet, 32_000.0),
        draw_radar({"A": [0.5, 0.5, 0.5, 0.5], "B<&": [0.1, 1.0, 0.7, 0.3]}, ("a", "b", "c", "d")),
    ]


def test_each_picture_is_well_formed_and_holds_no_number_that_is_none(answer: Answer) -> None:
    for svg in pictures(answer):
        ElementTree.fromstring(svg)
        ElementTree.fromstring(standalone(svg))
        assert not re.search(r"\b(nan|inf)\b", svg), svg[:200]


def test_points_of_a_picture_stay_inside_it(answer: Answer) -> None:
    for svg in pictures(answer):
        box = [float(part) for part in re.search(r'viewBox="([^"]+)"', svg).group(1).split()]  # type: ignore[union-attr]
        for points in re.findall(r'points="([^"]+)"', svg):
            for pair in points.split():
                x, y = map(float, pair.split(","))
                assert 0 <= x <= box[2]
                assert 0 <= y <= box[3]


def test_the_pareto_picture_shows_every_simulated_plan(answer: Answer) -> None:
    svg = draw_pareto(answer)
    assert svg.count("<circle") == len(answer.search.simulated)
    assert answer.search.best.label in svg


def test_the_page_needs_no_network_and_says_it_all(answer: Answer) -> None:
    figures = [Figure("pareto", "What it shows", draw_pareto(answer))]
    page = build_page(answer, figures, "pdd plan toy.yaml")
    assert "http" not in page
    assert not re.search(r"(src|href)=", page)
    assert len(page) < 500_000
    assert page.count("<figure") == 1
    for words in ("feasible:", "Why the others lost", "If the world is different", "Costs", "same site", "pdd plan"):
        assert words in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme" in page


def test_an_infeasible_answer_has_a_page_too() -> None:
    none = make_answer(question_of(spec_of()), ToyJudge(least_ttft_s=9.0))
    page = build_page(none, [Figure("pareto", "", draw_pareto(none))])
    assert "infeasible:" in page


def test_names_of_the_users_are_written_as_text(answer: Answer) -> None:
    spec = replace(spec_of(TEXT), model="<script>alert(1)</script>")
    found = replace(answer.search, question=question_of(spec))
    assert "<script>" not in build_page(replace(answer, search=found), [])


@pytest.mark.parametrize(("low", "high", "log"), [(0, 1, False), (3.2, 871, False), (0.01, 30, True), (5, 5, False)])
def test_axes_have_a_few_round_ticks(low: float, high: float, log: bool) -> None:
    axis = span_axis([low, high], "x", log=log)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 16
    assert all(0 <= axis.place(tick) <= 1 for tick in ticks)
    assert Axis(0, 10, "").place(20) == 1.0
