"""Reads the YAML file that `pdd up` and `pdd demo` run: one PDDDeployment and the PDDLink that it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pdd.api.checks import Severity
from pdd.api.config import EngineType
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.api.validate import validate_texts
from pdd.common.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """What runs: the deployment, and its link with the line's figures."""

    deployment: PDDDeployment
    link: PDDLink

    def with_line(self, rate_mbps: int | None, rtt_ms: int | None) -> LocalSpec:
        """The same over another line. A rate cap keeps its share of the capacity."""
        spec = self.link.spec
        capacity = spec.line.capacity_mbps if rate_mbps is None else rate_mbps
        line = spec.line.model_copy(
            update={"capacity_mbps": capacity, "rtt_ms": spec.line.rtt_ms if rtt_ms is None else rtt_ms}
        )
        lanes = spec.lanes
        if lanes.bulk.rate_cap_mbps is not None:
            cap = max(1, lanes.bulk.rate_cap_mbps * capacity // spec.line.capacity_mbps)
            bulk = lanes.bulk.model_copy(update={"rate_cap_mbps": cap})
            lanes = lanes.model_copy(update={"bulk": bulk})
        link = self.link.model_copy(update={"spec": spec.model_copy(update={"line": line, "lanes": lanes})})
        return LocalSpec(self.deployment, link)


def read_documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file. Raises InvalidInput."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidInput("FILE", str(path), f"cannot be read: {error.strerror}") from error
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise InvalidInput("FILE", str(path), f"is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InvalidInput("FILE", str(path), "is nested too deeply for a Kubernetes object") from error
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            raise InvalidInput("FILE", str(path), f"document {index + 1} is not an object")
    return documents


def load_local_spec(path: Path, name: str = "") -> LocalSpec:
    """The deployment `name` (or the only one) of `path` with its link. Raises InvalidInput that says what to change."""
    deployments: list[PDDDeployment] = []
    links: list[PDDLink] = []
    try:
        for document in read_documents(path):
            kind = document.get("kind")
            if kind == "PDDDeployment":
                deployments.append(PDDDeployment.from_object(document))
            elif kind == "PDDLink":
                links.append(PDDLink.from_object(document))
    except InvalidInput as error:
        raise (error if error.field == "FILE" else _first_error(path) or error) from error
    if name:
        deployments = [deployment for deployment in deployments if deployment.name == name]
    if not deployments:
        raise InvalidInput("FILE", str(path), f"holds no PDDDeployment{f' called {name}' if name else ''}")
    if len(deployments) > 1:
        names = ", ".join(deployment.name for deployment in deployments)
        raise InvalidInput("FILE", str(path), f"holds several PDDDeployments ({names}); choose one with --name")
    (deployment,) = deployments
    namespace, wanted = deployment.link_key
    matching = [link for link in links if (link.namespace, link.name) == (namespace, wanted)]
    if not matching:
        known = ", ".join(link.name for link in links) or "none"
        raise InvalidInput("spec.linkRef.name", wanted, f"the file holds no such PDDLink (it holds: {known})")
    if deployment.spec.engine.type != EngineType.REFERENCE:
        remedy = "runs on a cluster; local processes need `reference`"
        raise InvalidInput("spec.engine.type", deployment.spec.engine.type.value, remedy)
    if (wrong := _first_error(path)) is not None:
        raise wrong  # what an API server would refuse must not run here either: one file, every place
    return LocalSpec(deployment, matching[0])


def _first_error(path: Path) -> InvalidInput | None:
    """What `pdd validate` finds first, with its place and the key that was meant; None if the file is valid."""
    problems = [p for p in validate_texts([(str(path), path.read_text())]).problems if p.severity is Severity.ERROR]
    if not problems:
        return None
    first = problems[0]
    more = f"; `pdd validate {path}` shows all {len(problems)} errors" if len(problems) > 1 else ""
    remedy = f"{first.problem}: {first.remedy} ({path}:{first.line}:{first.column}{more})"
    return InvalidInput(first.field or "FILE", first.value or None, remedy)
