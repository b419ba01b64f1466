"""One handle, one reader, one deadline."""

from __future__ import annotations

import pytest

from pdd.engine.reference.leases import LeaseRefused, LeaseTable
from pdd.engine.reference.sequence import Lease

LEASE = Lease("h", (4, 5), 20)


def table() -> LeaseTable:
    leases = LeaseTable(30)
    leases.grant(LEASE, 0)
    return leases


def test_a_lease_is_read_once() -> None:
    leases = table()
    assert leases.begin_read("h", "me", 1) == LEASE
    leases.finish("h", "me", 2)
    assert leases.take_ended(2) == [LEASE]
    with pytest.raises(LeaseRefused, match="already read"):
        leases.begin_read("h", "me", 3)


def test_a_second_reader_is_refused_and_sent_for_a_handle_of_its_own() -> None:
    leases = table()
    leases.begin_read("h", "me", 1)
    with pytest.raises(LeaseRefused, match="another reader; ask the prefill engine"):
        leases.begin_read("h", "you", 2)
    with pytest.raises(LeaseRefused):
        leases.finish("h", "you", 2)
    assert leases.counts().refused == 2
    assert leases.take_ended(2) == []


def test_it_expires_without_a_sign_of_the_reader() -> None:
    leases = table()
    assert leases.next_deadline_s() == 30
    assert leases.take_ended(29.9) == []
    assert leases.take_ended(30) == [LEASE]
    with pytest.raises(LeaseRefused, match="expired after 30 s"):
        leases.begin_read("h", "me", 30)
    assert leases.counts().expired == 1


def test_a_queued_reader_keeps_it_alive() -> None:
    leases = table()
    leases.extend("h", "me", 20)
    assert leases.take_ended(49) == []
    assert leases.take_ended(50) == [LEASE]


def test_it_does_not_expire_while_it_is_being_read() -> None:
    leases = table()
    leases.begin_read("h", "me", 1)
    assert leases.take_ended(1000) == []
    assert leases.next_deadline_s() is None
    leases.finish("h", "me", 1000)
    assert leases.next_deadline_s() == 0.0
    assert leases.take_ended(1000) == [LEASE]


def test_a_reader_that_broke_off_has_a_third_of_the_time_to_come_back() -> None:
    leases = table()
    leases.begin_read("h", "me", 5)
    leases.break_read("h", "me", 5)
    assert leases.take_ended(14) == []
    assert leases.begin_read("h", "me", 14) == LEASE
    leases.break_read("h", "me", 14)
    assert leases.take_ended(24) == [LEASE]


def test_breaking_off_a_finished_read_changes_nothing() -> None:
    leases = table()
    leases.begin_read("h", "me", 1)
    leases.finish("h", "me", 1)
    leases.break_read("h", "me", 1)
    leases.break_read("gone", "me", 1)
    assert leases.take_ended(1) == [LEASE]
    assert leases.counts().read == 1


def test_a_handle_that_reached_nobody_is_withdrawn() -> None:
    leases = table()
    assert leases.withdraw("h") and not leases.withdraw("h") and not leases.withdraw("unknown")
    with pytest.raises(LeaseRefused):
        leases.begin_read("h", "me", 1)
    assert leases.take_ended(1) == [LEASE]


def test_a_handle_that_has_a_reader_is_not_withdrawn() -> None:
    leases = table()
    leases.begin_read("h", "me", 1)
    assert not leases.withdraw("h")
    assert leases.take_ended(2) == []
