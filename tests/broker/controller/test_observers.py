"""What DescribeQuorum reports of the brokers that read the metadata log."""

from __future__ import annotations

import uuid

from tidelog.broker.controller.metadata_reads import SESSION_MS, Observers

DIRECTORY = uuid.UUID(int=1000)


def test_a_broker_is_caught_up_when_it_fetches_at_the_end() -> None:
    observers = Observers()
    observers.fetched(2, DIRECTORY, offset=5, log_end=5, now_ms=10)
    observers.fetched(1, DIRECTORY, offset=3, log_end=5, now_ms=20)
    observers.fetched(2, DIRECTORY, offset=5, log_end=9, now_ms=30)
    states = observers.states(40)
    assert [(one.replica_id, one.log_end_offset, one.last_fetch_timestamp, one.last_caught_up_timestamp) for one in states] == [
        (1, 3, 20, -1),
        (2, 5, 30, 10),
    ]
    assert {one.replica_directory_id for one in states} == {DIRECTORY}


def test_a_broker_that_no_longer_fetches_is_not_listed() -> None:
    observers = Observers()
    observers.fetched(1, DIRECTORY, offset=5, log_end=5, now_ms=0)
    observers.fetched(2, DIRECTORY, offset=5, log_end=5, now_ms=1)
    assert [one.replica_id for one in observers.states(SESSION_MS)] == [2]
