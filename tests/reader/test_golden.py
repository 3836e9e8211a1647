"""Folders that Apache Kafka wrote: every look-up answers as its broker did.

Where Kafka says "none" although a record reaches the target (in a log whose first segments have no timestamps it looks at
one segment only), the answer is that record: the one deliberate difference (spec §13.3).
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.reader.golden import Case, cases
from tidelog.errors import UnsupportedForMessageFormatError
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP
from tidelog.reader.log import Log
from tidelog.reader.time_search import find_offset
from tidelog.reader.trace import KafkaStep, Trace
from tidelog.records.records import Record, iter_records

CASES = cases()


def topic_format(case: Case) -> int | None:
    """The topic's format where it is not the last batch's: `raised-unused` was raised and got no record since."""
    return 2 if case.topic == "raised-unused" else None


def plain_scan(log: Log) -> list[Record]:
    """All records from the log's start on, control records included."""
    return [
        record
        for segment, header in log.segment_headers()
        for record in iter_records(header, segment.read_batch(header))
        if record.offset >= log.log_start_offset
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_list_offsets(case: Case) -> None:
    with case.open(message_format=topic_format(case)) as log:
        records = plain_scan(log)
        for target, *answer in case.expected["list_offsets"]:
            if answer[0] == "error":
                assert answer == ["error", 43]
                with pytest.raises(UnsupportedForMessageFormatError):
                    find_offset(log, target)
                continue
            found = find_offset(log, target)
            if answer == [-1, -1]:
                answer = next(([one.offset, one.timestamp] for one in records if one.timestamp >= target), answer)
            assert ([-1, -1] if found is None else [found.offset, found.timestamp]) == answer, target


@pytest.mark.parametrize("case", [case for case in CASES if case.expected.get("max_timestamp")], ids=str)
def test_max_timestamp(case: Case) -> None:
    with case.open() as log:
        found = find_offset(log, MAX_TIMESTAMP)
        assert ([-1, -1] if found is None else [found.offset, found.timestamp]) == case.expected["max_timestamp"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ends(case: Case) -> None:
    """LogLoaderTest.testCleanShutdownFile and a broker's live folder: the log ends where the broker said."""
    with case.open() as log:
        assert (log.log_start_offset, log.log_end_offset) == (case.expected["log_start"], case.expected["high_watermark"])
        assert log.high_watermark == (case.expected["high_watermark"] if case.kind == "log" else None)
        earliest, latest = find_offset(log, EARLIEST), find_offset(log, LATEST)
        assert earliest is not None and earliest[:2] == (case.expected["log_start"], -1)
        assert latest is not None and latest[:2] == (case.expected["high_watermark"], -1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_read_committed(case: Case) -> None:
    expected = case.expected.get("read_committed_offsets")
    if expected is None:
        expected = [record[0] for record in case.expected["records"]]
    with case.open() as log:
        assert read_committed(log) == expected


def read_committed(log: Log) -> list[int]:
    stable = log.last_stable_offset
    aborted = log.aborted_transactions(log.log_start_offset, stable)
    seen = []
    for segment, header in log.segment_headers(end_offset=stable):
        if header.is_control:
            continue
        for record in iter_records(header, segment.read_batch(header)):
            hidden = header.is_transactional and any(
                txn.producer_id == header.producer_id and txn.first_offset <= record.offset <= txn.last_offset for txn in aborted
            )
            if not hidden and log.log_start_offset <= record.offset < stable:
                seen.append(record.offset)
    return seen


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_in_a_sound_folder_is_worth_a_notice(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), case.open(message_format=2) as log:
        for target in (0, 1_600_604_800_000, 2_000_000_000_000, MAX_TIMESTAMP):
            find_offset(log, target, trace=Trace())
        assert log.last_stable_offset == log.log_end_offset
        log.aborted_transactions(0, log.log_end_offset)
        assert log.leader_epochs.entries or case.release == "kafka-2.4.1" or not case.expected["records"]
    assert not caplog.records


def kafka_answers(case: Case) -> list[Any]:
    return [entry for entry in case.expected["list_offsets"] if entry[1] != "error"]


@pytest.mark.parametrize("case", [case for case in CASES if kafka_answers(case)], ids=str)
def test_trace_tells_what_kafka_answers(case: Case) -> None:
    """Git keeps no file times: they are set to what they were where that was noted, elsewhere to later than any record."""
    with case.open(message_format=topic_format(case)) as log:
        for segment in log.segments:
            segment.modified_ms = case.expected.get("segment_mtimes_ms", {}).get(str(segment.base_offset), 2**60)
        for target, offset, timestamp in kafka_answers(case):
            trace = Trace()
            find_offset(log, target, trace=trace)
            (kafka,) = [step for step in trace.steps if isinstance(step, KafkaStep)]
            assert [kafka.offset, kafka.timestamp] == [offset, timestamp], target
