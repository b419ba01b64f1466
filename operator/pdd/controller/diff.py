"""What differs between the fields that we want and a live object, with a reason for each, as text. Pure.

Only the fields that we set are compared: defaults and other managers' fields are none of our business. A field that we
no longer set shows in the hash annotation, which covers the whole desired object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

import orjson

from pdd.controller.kube.resources import Object, Ref, annotations_of, ref_of

HASH_ANNOTATION = "pdd.dev/applied-hash"
_LIST_KEYS = ("name", "mountPath", "containerPort", "port", "ip", "uid", "type")
_SUFFIX = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")


class Action(StrEnum):
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One object that must be written. `reasons` say why, in words; `obj` is the desired (or, on delete, the live)
    one."""

    action: Action
    ref: Ref
    obj: Object
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.action.value} {self.ref}: {'; '.join(self.reasons)}"


def diff(desired: Sequence[Object], live: Sequence[Object], *, prune: bool) -> tuple[Change, ...]:
    """The changes that make `live` like `desired`. Creates and updates in the order of `desired`, then deletes.

    `prune` False deletes nothing: pass True only when `live` came from a successful list.
    """
    by_ref = {ref_of(obj): obj for obj in live}
    changes: list[Change] = []
    for want in desired:
        have = by_ref.pop(ref_of(want), None)
        if have is None:
            changes.append(Change(Action.CREATE, ref_of(want), want, ("it does not exist",)))
            continue
        reasons = drift(want, have)
        if reasons:
            changes.append(Change(Action.UPDATE, ref_of(want), want, reasons))
    if prune:
        changes += [
            Change(Action.DELETE, ref, obj, ("it is no longer wanted",))
            for ref, obj in sorted(by_ref.items())
            if not obj["metadata"].get("deletionTimestamp")
        ]
    return tuple(changes)


def drift(want: Object, have: Object, *, limit: int = 8) -> tuple[str, ...]:
    """Why `have` is not what we want; empty if it is. At most `limit` reasons."""
    reasons: list[str] = []
    _compare(want, have, "", reasons)
    return tuple(reasons[:limit]) if len(reasons) <= limit else (*reasons[:limit], f"and {len(reasons) - limit} more")


def with_hash(obj: Object) -> Object:
    """The object with the hash annotation over all its fields."""
    digest = hashlib.sha256(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    meta = {**obj["metadata"], "annotations": {**annotations_of(obj), HASH_ANNOTATION: digest}}
    return {**obj, "metadata": meta}


def _compare(want: Any, have: Any, path: str, reasons: list[str]) -> None:
    if isinstance(want, Mapping):
        if not isinstance(have, Mapping):
            if want:
                reasons.append(f"{path} is missing")
            return
        for key, value in want.items():
            below = f"{path}.{key}" if path else str(key)
            if key in have:
                _compare(value, have[key], below, reasons)
            elif not _empty(value):
                reasons.append(f"{below} is missing, wanted {_short(value)}")
    elif isinstance(want, list | tuple):
        _compare_lists(want, have, path, reasons)
    elif not _same(want, have):
        reasons.append(f"{path} is {_short(have)}, wanted {_short(want)}")


def _compare_lists(want: Sequence[Any], have: Any, path: str, reasons: list[str]) -> None:
    if not isinstance(have, list):
        if want:
            reasons.append(f"{path} is missing")
        return
    key = _list_key(want)
    if key is None:
        if len(want) != len(have):
            reasons.append(f"{path} has {len(have)} entries, wanted {len(want)}")
            return
        for index, (a, b) in enumerate(zip(want, have, strict=True)):
            _compare(a, b, f"{path}[{index}]", reasons)
        return
    named = {entry.get(key): entry for entry in have if isinstance(entry, Mapping)}
    for entry in want:
        below = f"{path}[{entry[key]}]"
        if entry[key] in named:
            _compare(entry, named[entry[key]], below, reasons)
        else:
            reasons.append(f"{below} is missing")


def _list_key(items: Sequence[Any]) -> str | None:
    """The field that names the entries, as in Kubernetes' list maps; None for an atomic list."""
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    for key in _LIST_KEYS:
        if all(key in item for item in items) and len({item[key] for item in items}) == len(items):
            return key
    return None


def _same(want: Any, have: Any) -> bool:
    if want == have and isinstance(want, bool) == isinstance(have, bool):
        return True
    a, b = _quantity(want), _quantity(have)
    return a is not None and a == b and (isinstance(want, str) or isinstance(have, str))


def _quantity(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _QUANTITY.match(str(value))
    return Decimal(match[1]) * _SUFFIX[match[2] or ""] if match else None


def _empty(value: Any) -> bool:
    return value is None or value == {} or value == [] or value == ()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
