"""Names stay within Kubernetes' limits, are stable, and distinct for distinct owners."""

from __future__ import annotations

import re

from pdd.controller.labels import MAX_CHILD, Owner, child_name, cut

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")


def test_short_names_stay_readable() -> None:
    assert child_name("tiny", "main-decode") == "tiny-main-decode"


def test_long_names_are_cut_with_a_hash_and_stay_distinct() -> None:
    one, two = child_name("x" * 60, "relay-decode"), child_name("x" * 61, "relay-decode")
    assert one != two and len(one) <= MAX_CHILD and len(two) <= MAX_CHILD
    assert LABEL.match(one) and one.endswith("-relay-decode")


def test_pod_revision_label_of_the_longest_child_fits() -> None:
    assert len(child_name("y" * 63, "main-decode")) + len("-0123456789") <= 63


def test_dots_are_no_part_of_a_service_name_and_do_not_collide() -> None:
    assert LABEL.match(child_name("a.b", "router"))
    assert child_name("a.b", "router") != child_name("a-b", "router")


def test_cut_never_ends_in_a_dash() -> None:
    assert LABEL.match(cut("ab-" * 30, 30))


def test_labels_fit_and_selectors_hold_only_what_never_changes() -> None:
    owner = Owner("PDDDeployment", "n" * 63, "m" * 200, "uid", "a", "link-uid")
    assert all(len(value) <= 63 for value in owner.labels("router").values())
    assert owner.selector("router").items() <= owner.labels("router").items()
