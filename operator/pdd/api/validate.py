"""Offline validation of YAML: the same rules as the CRD, the sense checks, and places in the file.

Stricter than an API server in one point: an unknown key is an error, with the nearest known one. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from pdd.api.base import Model
from pdd.api.checks import Finding, Severity, check_engine, check_link, check_link_spec, check_memory
from pdd.api.conditions import Reason
from pdd.api.rules import rules_of
from pdd.api.schema_walk import known_keys
from pdd.api.v1alpha1 import API_VERSION, GROUP, PDDDeployment, PDDLink, Resource
from pdd.api.yaml_places import Document, read_yaml

KINDS: Mapping[str, type[Resource]] = {"PDDDeployment": PDDDeployment, "PDDLink": PDDLink}
MAX_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: where (file, 1-based line and column, object), what, and what to do."""

    file: str
    line: int
    column: int
    object: str
    field: str
    value: str
    problem: str
    remedy: str
    reason: str = Reason.INVALID_SPEC.value
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Checked:
    """One document that was read. checked False: a kind that is not ours, left alone."""

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    checked: bool


@dataclass(frozen=True, slots=True)
class Report:
    documents: tuple[Checked, ...]
    problems: tuple[Problem, ...]

    @property
    def valid(self) -> bool:
        """No errors; warnings do not count."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)


def validate_texts(texts: Sequence[tuple[str, str]]) -> Report:
    """Validate (file name, YAML text) pairs together, so that a link may stand in another file."""
    checked: list[Checked] = []
    problems: list[Problem] = []
    objects: list[tuple[Document, Resource]] = []
    for file, text in texts:
        documents, broken = read_yaml(file, text)
        if broken is not None:
            problems.append(Problem(file, broken.line, broken.column, "", "", "", broken.problem, "mend the YAML"))
        for document in documents:
            found, entry, resource = _validate_document(document)
            problems += found
            checked.append(entry)
            if resource is not None:
                objects.append((document, resource))
    problems += _validate_together(objects)
    if not checked and not problems:
        names = ", ".join(file for file, _ in texts)
        problems.append(
            Problem(names, 1, 1, "", "", "", "holds no object", "write a PDDDeployment or a PDDLink into it")
        )
    return Report(tuple(checked), tuple(problems))


def _validate_document(document: Document) -> tuple[list[Problem], Checked, Resource | None]:
    body = document.body
    metadata = body.get("metadata") if isinstance(body, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = body.get("kind") if isinstance(body, dict) else None
    entry = Checked(
        document.file,
        document.line,
        kind if isinstance(kind, str) else "",
        str(metadata.get("namespace") or "default"),
        str(metadata.get("name") or ""),
        isinstance(kind, str) and kind in KINDS,
    )
    report = _Reporter(document, entry)
    if not isinstance(body, dict):
        return [report.problem((), body, "is not an object", "write apiVersion, kind, metadata and spec")], entry, None
    for path in document.duplicates:
        report.add(path, document.value(path), "is given twice", "keep one; a reader would take the last")
    if not isinstance(kind, str) or kind not in KINDS:
        report.unknown_kind(body)
        return report.problems, entry, None
    if body.get("apiVersion") != API_VERSION:
        report.add(("apiVersion",), body.get("apiVersion"), "is not served", f"write {API_VERSION}")
        return report.problems, entry, None
    if not metadata.get("name"):
        report.add(("metadata", "name"), None, "is missing", "give the object a name")
    resource = _parse(KINDS[kind], body, report)
    if resource is not None and metadata.get("name"):
        _apply_rules(resource, report)
    return report.problems, entry, resource if not report.problems else None


def _parse(model: type[Resource], body: dict[str, Any], report: _Reporter) -> Resource | None:
    try:
        # JSON and strict, as an API server reads it: "4" is no integer, 4.0 no string.
        return model.model_validate_json(json.dumps(body, default=str), strict=True)
    except ValidationError as error:
        seen: set[tuple[str | int, ...]] = set()
        for item in error.errors():
            path = document_path(item["loc"], body)
            if path in seen:
                continue
            seen.add(path)
            report.add_schema_error(model, path, item["type"], item["msg"], item.get("ctx") or {})
        return None


def document_path(location: Sequence[str | int], body: Any) -> tuple[str | int, ...]:
    """A pydantic location without the names of union members, which are no keys of the document."""
    path: list[str | int] = []
    node = body
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(node, dict):
            if part not in node and not last:
                break
            path.append(part)
            node = node.get(part) if isinstance(part, str) else None
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            path.append(part)
            node = node[part]
        else:
            break
    return tuple(path)


def _apply_rules(resource: Resource, report: _Reporter) -> None:
    body = resource.to_object()
    for rule in rules_of(type(resource).__name__):
        node: Any = body
        for key in rule.path:
            node = node.get(key) if isinstance(node, dict) else None
        if node is None or rule.transition or rule.holds(node, None):
            continue
        path = (*rule.path, *(part for part in rule.field.split(".") if part))
        shown = path or ("metadata", "name")
        report.add(shown, report.document.value(shown), "breaks a rule", rule.message)


def _validate_together(objects: Sequence[tuple[Document, Resource]]) -> Iterator[Problem]:
    links = {(r.namespace, r.name): r for _, r in objects if isinstance(r, PDDLink)}
    seen: set[tuple[str, str, str]] = set()
    for document, resource in objects:
        kind = type(resource).__name__
        entry = Checked(document.file, document.line, kind, resource.namespace, resource.name, True)
        report = _Reporter(document, entry)
        key = (kind, resource.namespace, resource.name)
        if key in seen:
            report.add(("metadata", "name"), resource.name, "is given to two objects of this kind", "rename one")
        seen.add(key)
        findings: list[Finding] = []
        if isinstance(resource, PDDLink):
            findings += check_link_spec(resource)
        if isinstance(resource, PDDDeployment):
            link = links.get(resource.link_key)
            # A link that stands in no file may well exist in the cluster: no finding.
            findings += check_link(resource, link) if link else ()
            findings += (*check_engine(resource, link), *check_memory(resource))
        for finding in findings:
            path = tuple(finding.field.split("."))
            report.problems.append(
                report.problem(path, finding.value, finding.problem, finding.remedy, finding.reason, finding.severity)
            )
        yield from report.problems


class _Reporter:
    """Turns paths into problems with line and column."""

    def __init__(self, document: Document, entry: Checked) -> None:
        self.document = document
        self.object = f"{entry.kind or 'object'} {entry.name}".strip()
        self.problems: list[Problem] = []

    def add(self, path: Sequence[str | int], value: object, problem: str, remedy: str) -> None:
        self.problems.append(self.problem(path, value, problem, remedy))

    def problem(
        self,
        path: Sequence[str | int],
        value: object,
        problem: str,
        remedy: str,
        reason: Reason = Reason.INVALID_SPEC,
        severity: Severity = Severity.ERROR,
    ) -> Problem:
        line, column = self.document.place(path)
        return Problem(
            self.document.file, line, column, self.object, show_path(path), _shown(value), problem, remedy,
            reason.value, severity,
        )  # fmt: skip

    def unknown_kind(self, body: Mapping[str, Any]) -> None:
        """A kind of others is left alone, unless it claims our group or is nearly one of ours."""
        given = body.get("kind")
        if given is not None and not isinstance(given, str):
            self.add(("kind",), given, "is not a string", f"write one of {', '.join(KINDS)}")
            return
        kind, version = given or "", str(body.get("apiVersion") or "")
        near = get_close_matches(kind, KINDS, n=1, cutoff=0.7)
        if not kind:
            self.add(("kind",), None, "is missing", f"write one of {', '.join(KINDS)}")
        elif near or version.partition("/")[0] == GROUP:
            remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(KINDS)}"
            self.add(("kind",), kind, "is not a kind of ours", remedy)

    def add_schema_error(
        self, model: type[Model], path: tuple[str | int, ...], type_: str, message: str, context: Mapping[str, Any]
    ) -> None:
        value = self.document.value(path)
        if type_ == "extra_forbidden":
            keys = known_keys(model, path[:-1])
            near = get_close_matches(str(path[-1]), keys, n=1, cutoff=0.6)
            remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(keys)) or 'nothing'}"
            self.add(path, value, "is not a known field", remedy)
        elif type_ == "missing":
            self.add(path, None, "is missing", "it has no default; give it")
        elif type_ in ("enum", "literal_error"):
            self._add_choice(path, value, str(context.get("expected", "")))
        elif len(path) >= 2 and path[-2] in ("requests", "limits"):
            self.add(path, value, "is not a quantity", 'write one like "500m", 2 or 16Gi')
        else:
            self.add(path, value, "is not valid", _plain(type_, message, context))

    def _add_choice(self, path: Sequence[str | int], value: object, expected: str) -> None:
        choices = [choice.strip().strip("'") for choice in expected.replace(" or ", ", ").split(",")]
        lowered = {choice.lower(): choice for choice in choices}
        near = get_close_matches(str(value).lower(), lowered, n=1, cutoff=0.6)
        hint = f"did you mean {lowered[near[0]]}? " if near else ""
        self.add(path, value, "is not one of the choices", f"{hint}write one of {', '.join(choices)}")


def show_path(path: Sequence[str | int]) -> str:
    """`spec.engine.env[0].name`."""
    shown = ""
    for part in path:
        shown += f"[{part}]" if isinstance(part, int) else (f".{part}" if shown else part)
    return shown


_PLAIN = {
    "int_type": "write a whole number without quotes",
    "int_from_float": "write a whole number; units are in the field's name",
    "string_type": "write a text; put it in quotes",
    "bool_type": "write true or false",
    "dict_type": "write an object (key: value lines)",
    "model_type": "write an object (key: value lines)",
    "tuple_type": "write a list",
    "list_type": "write a list",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must be at most {max_length} characters",
    "string_too_short": "must not be empty",
    "too_long": "may hold at most {max_length} entries",
}


def _plain(type_: str, message: str, context: Mapping[str, Any]) -> str:
    """A remedy in plain words; pydantic's own message for rare errors."""
    template = _PLAIN.get(type_)
    return template.format(**context) if template else message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."
