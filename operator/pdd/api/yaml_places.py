"""YAML documents that remember where each of their fields stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str | int, ...]
MAX_NODES = 100_000
"""Fields and entries of one document with aliases written out; beyond it is no resource but an attack."""
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Broken:
    """Text that is no YAML: 1-based place and what the parser said."""

    line: int
    column: int
    problem: str


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. places: path -> 1-based (line, column) of the key or entry."""

    file: str
    line: int
    body: Any
    places: dict[Path, tuple[int, int]]
    duplicates: tuple[Path, ...]

    def place(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Where the field stands, or the nearest of its parents that is there."""
        parts = tuple(path)
        while parts and parts not in self.places:
            parts = parts[:-1]
        return self.places.get(parts, (self.line, 1))

    def value(self, path: Sequence[str | int]) -> Any:
        """The value at path; None if there is none."""
        node = self.body
        for part in path:
            if isinstance(node, dict) and isinstance(part, str):
                node = node.get(part)
            elif isinstance(node, list) and isinstance(part, int) and part < len(node):
                node = node[part]
            else:
                return None
        return node


def read_yaml(file: str, text: str) -> tuple[list[Document], Broken | None]:
    """All documents up to the first broken one. Empty documents are skipped."""
    documents: list[Document] = []
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return documents, Broken(line, 1, f"holds a character that YAML forbids: U+{error.character:04X}")
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                break
            places: dict[Path, tuple[int, int]] = {}
            duplicates: list[Path] = []
            for count, (path, place, twice) in enumerate(_walk(node, ())):
                if count >= MAX_NODES or len(path) > MAX_DEPTH:
                    mark = node.start_mark
                    return documents, Broken(mark.line + 1, mark.column + 1, "is too large or too deep for a resource")
                places.setdefault(path, place)
                if twice:
                    duplicates.append(path)
            body = loader.construct_document(node)
            if body is None:
                continue
            documents.append(Document(file, node.start_mark.line + 1, body, places, tuple(duplicates)))
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return documents, Broken(line, column, f"is not YAML: {problem}")
    except RecursionError:
        return documents, Broken(1, 1, "is too large or too deep for a resource")
    finally:
        loader.dispose()
    return documents, None


def _walk(node: yaml.Node, path: Path) -> Iterator[tuple[Path, tuple[int, int], bool]]:
    """(path, place, given twice) of every key and entry below node. An alias is walked once for each use."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            mark = key.start_mark
            yield (*path, name), (mark.line + 1, mark.column + 1), name in seen
            seen.add(name)
            yield from _walk(value, (*path, name))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            mark = value.start_mark
            yield (*path, index), (mark.line + 1, mark.column + 1), False
            yield from _walk(value, (*path, index))
