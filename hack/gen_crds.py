#!/usr/bin/env python3
"""Write crds/*.yaml, the operator chart's copies and docs/api.md from the models.

`--check` writes nothing and exits 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT)]

from hack.api_doc import render  # noqa: E402

from pdd.api.crd import KINDS, render_crd  # noqa: E402

CHART = ROOT / "charts" / "pdd-operator" / "templates" / "crds"
WRAP_BEGIN = "{{- if .Values.crds.enabled }}\n"
WRAP_END = "{{- end }}\n"
KEEP = "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"


def render_files() -> dict[Path, str]:
    """Every generated file and its text. The chart's copy is the CRD, plus the condition and the keep annotation."""
    files: dict[Path, str] = {}
    for kind in KINDS:
        text = render_crd(kind)
        name = f"{kind.lower()}s.yaml"
        files[ROOT / "crds" / name] = text
        files[CHART / name] = wrap(text)
    files[ROOT / "docs" / "api.md"] = render()
    return files


def wrap(text: str) -> str:
    """The CRD as a Helm template."""
    if "{{" in text:
        raise ValueError("a CRD with '{{' would be taken for a template")
    head, found, rest = text.partition("metadata:\n")
    if not found:
        raise ValueError("no metadata in the CRD")
    return f"{WRAP_BEGIN}{head}{found}{KEEP}{rest}{WRAP_END}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    stale = []
    for path, text in render_files().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.relative_to(ROOT))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path}")
    if check and stale:
        print("run: python hack/gen_crds.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
