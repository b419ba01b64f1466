"""Offline validation: every problem with its place, value and remedy."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pdd.api.checks import Severity
from pdd.api.validate import Problem, Report, show_path, validate_texts

HEAD = """\
apiVersion: pdd.dev/v1alpha1
kind: PDDDeployment
metadata: {name: tiny}
spec:
  linkRef: {name: b}
"""
LINK = """\
apiVersion: pdd.dev/v1alpha1
kind: PDDLink
metadata: {name: b}
spec:
  member: {kubeconfigSecretRef: {name: b}}
  line: {capacityMbps: 100, rttMs: 20}
"""


def check(*texts: str) -> Report:
    return validate_texts([(f"f{index}.yaml", text) for index, text in enumerate(texts)])


def only(report: Report) -> Problem:
    (problem,) = report.problems
    return problem


def deployment(spec: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in dedent(spec).splitlines())


def test_a_valid_file_names_what_was_checked() -> None:
    report = check(LINK + "---\n" + deployment("model: {name: tiny}"))
    assert report.valid and report.problems == ()
    assert [(d.kind, d.namespace, d.name, d.line) for d in report.documents] == [
        ("PDDLink", "default", "b", 1),
        ("PDDDeployment", "default", "tiny", 8),
    ]


@pytest.mark.parametrize(
    ("spec", "field", "place", "value", "remedy"),
    [
        ("model: {name: t, maxContextToken: 5}", "spec.model.maxContextToken", (6, 20), "5", "maxContextTokens?"),
        (
            "model: {name: t}\nrouter:\n  relayTreshold: 1",
            "spec.router.relayTreshold",
            (8, 5),
            "1",
            "relayThresholdMs?",
        ),
        ("model: {name: t}\nfoo: 1", "spec.foo", (7, 3), "1", "known here: engine, linkRef"),
        ("model: {}", "spec.model.name", (6, 3), "", "no default"),
        ("model: {name: t, maxContextTokens: '5'}", "spec.model.maxContextTokens", (6, 20), "5", "without quotes"),
        ("model: {name: t, maxContextTokens: 5.5}", "spec.model.maxContextTokens", (6, 20), "5.5", "whole number"),
        ("model: {name: t, maxContextTokens: 5}", "spec.model.maxContextTokens", (6, 20), "5", "at least 16"),
        ("model: {name: 7}", "spec.model.name", (6, 11), "7", "quotes"),
        ("model: {name: t}\nengine: {type: vlm}", "spec.engine.type", (7, 12), "vlm", "did you mean vllm?"),
        (
            "model: {name: t}\nengine:\n  env:\n  - {name: A, valu: x}",
            "spec.engine.env[0].valu",
            (9, 17),
            "x",
            "did you mean value?",
        ),
        (
            "model: {name: t}\nroles: {prefill: {resources: {limits: {memory: 3Gb}}}}",
            "spec.roles.prefill.resources.limits.memory",
            (7, 42),
            "3Gb",
            "16Gi",
        ),
        (
            "model: {name: t}\nroles: {relayDecode: {replicas: 2, autoscaling: {minReplicas: 3, maxReplicas: 2}}}",
            "spec.roles.relayDecode.autoscaling.minReplicas",
            (7, 52),
            "3",
            "must not exceed maxReplicas",
        ),
        ("model: {name: t}\nengine: []", "spec.engine", (7, 3), "[]", "write an object"),
        ("model: {name: t, servedNames: a}", "spec.model.servedNames", (6, 20), "a", "write a list"),
        ("model: {name: t, name: u}", "spec.model.name", (6, 11), "u", "keep one"),
    ],
)
def test_a_problem_has_field_place_value_and_remedy(
    spec: str, field: str, place: tuple[int, int], value: str, remedy: str
) -> None:
    report = check(deployment(spec))
    assert not report.valid
    problem = only(report)
    assert (problem.field, (problem.line, problem.column), problem.value) == (field, place, value)
    assert remedy in problem.remedy
    assert problem.object == "PDDDeployment tiny"


def test_all_problems_are_told_at_once() -> None:
    report = check(deployment("model: {name: 5, maxContextTokens: 0}\nengine: {typ: vllm}\nrouter: {replicas: 0}"))
    assert [p.field for p in report.problems] == [
        "spec.model.name",
        "spec.model.maxContextTokens",
        "spec.engine.typ",
        "spec.router.replicas",
    ]


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("apiVersion: pdd.dev/v1\nkind: PDDLink\n", "is not served", "pdd.dev/v1alpha1"),
        ("apiVersion: pdd.dev/v1alpha1\nkind: PDDdeployment\n", "is not a kind of ours", "did you mean PDDDeployment?"),
        ("apiVersion: pdd.dev/v1alpha1\nkind: Zebra\n", "is not a kind of ours", "PDDDeployment, PDDLink"),
        ("kind:\n", "is missing", "PDDDeployment, PDDLink"),
        ("- a\n- b\n", "is not an object", "apiVersion"),
        ("a: [1\n", "is not YAML", "mend"),
        ("a: !!python/object:os.system x\n", "is not YAML", "mend"),
        ("", "holds no object", "write"),
        (LINK.replace("name: b}", "namespace: x}", 1), "is missing", "name"),
    ],
)
def test_what_is_no_resource_of_ours(text: str, problem: str, remedy: str) -> None:
    found = check(text).problems[0]
    assert problem in found.problem and remedy in found.remedy


def test_kinds_of_others_are_left_alone() -> None:
    report = check("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
    assert report.valid and [d.checked for d in report.documents] == [False]


def test_a_broken_document_does_not_hide_an_earlier_one() -> None:
    report = check(deployment("model: {nam: t}") + "---\na: [\n")
    assert {p.line for p in report.problems} == {6, 8} or len(report.problems) >= 2
    assert any("is not YAML" in p.problem for p in report.problems)


def test_a_link_may_stand_in_another_file() -> None:
    vllm = deployment("model: {name: t, kv: {bytesPerToken: 9}}\nengine: {type: vllm}")
    connect = LINK + "  endpoint: {capture: Connect}\n"
    assert check(vllm).valid
    problem = only(check(vllm, connect))
    assert problem.field == "spec.engine.type" and "Redirect" in problem.remedy and problem.file == "f0.yaml"


def test_a_link_that_forbids_the_namespace_is_told() -> None:
    text = deployment("model: {name: t}").replace("{name: tiny}", "{name: tiny, namespace: chat}")
    text = text.replace("linkRef: {name: b}", "linkRef: {name: b, namespace: default}")
    assert only(check(text, LINK)).reason == "NamespaceNotAllowed"
    assert check(text, LINK + "  allowedNamespaces: [chat]\n").valid


def test_a_warning_does_not_make_a_file_invalid() -> None:
    report = check(deployment("model: {name: t}\nroles: {prefill: {accelerator: {type: XPU9, count: 1}}}"))
    assert report.valid and only(report).severity is Severity.WARNING


def test_one_name_twice_is_told() -> None:
    problem = only(check(LINK, LINK))
    assert (problem.file, problem.field) == ("f1.yaml", "metadata.name")


def test_a_name_that_services_cannot_bear_is_told() -> None:
    problem = only(check(LINK.replace("name: b}\nspec", "name: 2b}\nspec")))
    assert problem.field == "metadata.name" and problem.value == "2b"


def test_aliases_that_blow_up_are_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too large" in check("\n".join(lines)).problems[0].problem


def test_a_file_that_holds_itself_is_refused() -> None:
    assert "too large or too deep" in check("a: &a [*a]").problems[0].problem


def test_paths_are_shown_as_people_write_them() -> None:
    assert show_path(("spec", "engine", "env", 0, "name")) == "spec.engine.env[0].name"


def test_a_character_that_yaml_forbids_is_a_problem_with_its_line() -> None:
    report = validate_texts([("a.yaml", "kind: PDDLink\nname: \x00\n")])
    assert [(problem.line, "U+0000" in problem.problem) for problem in report.problems] == [(2, True)]


DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize(
    "text",
    [
        f"a: {DEEP}", f"kind: {DEEP}", "a: " * 3000 + "b", "kind: [a]", "kind: {a: b}", "kind: 5", "kind: 2020-01-01",
        "apiVersion: [1]", "apiVersion: 5\nkind: [a]\nmetadata: 7\nspec: x", "? [a]\n: b", "a: !!binary zz",
        "a: 2020-13-45", "a: !!python/object/apply:os.system [ls]",
        "apiVersion: pdd.dev/v1alpha1\nkind: PDDLink\nmetadata: {name: [1]}\nspec: {}",
        "apiVersion: pdd.dev/v1alpha1\nkind: PDDLink\nmetadata: [a]\nspec: {line: {rttMs: .nan, capacityMbps: 1e400}}",
        "apiVersion: pdd.dev/v1alpha1\nkind: PDDDeployment\nmetadata: {name: {a: b}, namespace: 5}\nspec: [x]",
    ],
)  # fmt: skip
def test_no_text_is_more_than_a_problem(text: str) -> None:
    """Whatever a file holds: an error with a place, and never a fault of the validator."""
    report = check(text)
    assert not report.valid
    assert all(problem.line >= 1 and problem.problem and problem.remedy for problem in report.problems)
