"""The report's pictures and page: well formed, complete, without any address, and safe with odd names."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.planner.plan.toy import TEXT, ToyJudge, question_of, spec_of

from pdd.planner.answer import Answer, make_answer
from pdd.planner.catalogue import load_chips
from pdd.planner.report.charts import draw_bathtub, draw_cdfs, draw_pareto, draw_radar, draw_timeline
from pdd.planner.report.files import make_png, make_svg
from pdd.planner.report.page import Figure, build_page
from pdd.planner.report.svg import COLOURS, PALETTE, Axis, span_axis


@pytest.fixture(scope="module")
def answer() -> Answer:
    return make_answer(question_of(spec_of()), ToyJudge())


def pictures(answer: Answer) -> list[str]:
    draw = np.random.default_rng(1)
    ways = {name: np.sort(draw.lognormal(mean, 0.5, 2000)) for name, mean in (("PDD", -1.0), ("naive", 0.5))}
    request: dict[str, float | int | str | None] = {
        "pipeline": "P-RLD-MD",
        "firstTokenS": 0.2,
        "secondTokenS": 0.25,
        "landedS": 1.4,
        "stallS": 0.02,
        "relayTokens": 48,
        "doneS": 30.0,
    }
    fleet = answer.search.best.fleet
    return [
        draw_pareto(answer),
        draw_cdfs(ways, 2.0),
        draw_timeline(request),
        draw_timeline(request | {"pipeline": "P-MD", "stallS": None}),
        draw_timeline(request, request | {"pipeline": "P-MD", "landedS": None, "secondTokenS": 2.0}),
        draw_bathtub(fleet, 32_000.0),
        draw_radar({"A": [0.5, 0.5, 0.5, 0.5], "B<&": [0.1, 1.0, 0.7, 0.3]}, ("a", "b", "c", "d")),
    ]


def test_each_picture_is_well_formed_and_holds_no_number_that_is_none(answer: Answer) -> None:
    for svg in pictures(answer):
        ElementTree.fromstring(svg)
        ElementTree.fromstring(make_svg(svg))
        assert not re.search(r"\b(nan|inf)\b", svg), svg[:200]


def test_a_file_has_plain_colours_and_a_png_with_its_words(answer: Answer) -> None:
    """Viewers beside browsers know no custom properties; a PNG without a font would be drawn, but without words."""
    for picture in pictures(answer):
        svg = make_svg(picture)
        assert "var(" not in svg
        png = make_png(svg)
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", png[16:24])
        box = [float(part) for part in svg.partition('viewBox="')[2].partition('"')[0].split()]
        assert (width, height) == (round(box[2] * 3), round(box[3] * 3))
        wordless = make_png(re.sub("<text.*?</text>", "", svg))
        assert len(png) > len(wordless) * 1.05
        for name, shade in zip(COLOURS, PALETTE, strict=True):
            if re.search(rf'class="[^"]*\b{name}\b', picture):
                assert make_png(svg.replace(shade, "#010203")) != png, f"{name} is not drawn in {shade}"


def test_points_of_a_picture_stay_inside_it(answer: Answer) -> None:
    for svg in pictures(answer):
        box = [float(part) for part in re.search(r'viewBox="([^"]+)"', svg).group(1).split()]  # type: ignore[union-attr]
        for points in re.findall(r'points="([^"]+)"', svg):
            for pair in points.split():
                x, y = map(float, pair.split(","))
                assert 0 <= x <= box[2]
                assert 0 <= y <= box[3]


def test_the_time_line_says_what_relay_decode_made_and_what_waiting_costs(answer: Answer) -> None:
    with_relay, both = pictures(answer)[2], pictures(answer)[4]
    assert "48 tokens" in with_relay
    assert "pause at the handoff 20 ms" in with_relay
    assert "naive: P-MD" in both
    assert "second token at 2 s" in both
    assert both.count("<rect") == 7


def test_each_picture_is_told_in_words(answer: Answer) -> None:
    for svg in pictures(answer):
        assert re.search(r'role="img" aria-label="[^"]{20,}"', svg)
        assert re.search(r"<desc>[^<]{20,}</desc>", svg)


def test_the_page_names_assumptions_and_the_sources_of_each_chip(answer: Answer) -> None:
    page = build_page(answer, [], chips={"H100": load_chips()["H100"]})
    assert "Assumptions and sources" in page
    assert "roofline of the figures below, not measured" in page
    assert "market, 37 providers" in page
    assert "llm-d 4.5" in page


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
