"""A log that is opened again as it grows: what it takes over from its last opening is what it would have found itself."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader import build
from tests.sources.logs import LogBuilder
from tests.sources.test_property import steps
from tidelog.errors import CorruptBatchError
from tidelog.reader import transactions
from tidelog.reader.log import Log
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType

looks = st.fixed_dictionaries({"kind": st.just("look"), "below": st.one_of(st.none(), st.integers(0, 6))})


@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(steps(), looks), max_size=25))
def test_transactions_are_those_of_a_fresh_opening(happened: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        builder = LogBuilder(Path(folder), segment_bytes=600)
        before: Log | None = None
        mark = 0
        for step in [*happened, {"kind": "look", "below": None}]:
            kind, arguments = step["kind"], {name: value for name, value in step.items() if name != "kind"}
            if kind == "roll":
                if builder.next_offset > max(int(path.stem) for path in builder.logs()):
                    builder.roll()
            elif kind == "end":
                if arguments["producer_id"] in builder.open:
                    builder.end_transaction(**arguments)
            elif kind != "look":
                builder.append(**arguments)
            else:
                below = step["below"]
                # A high watermark never goes back.
                mark = max(mark, builder.next_offset - below) if below is not None else mark
                given_mark = None if below is None else mark
                followed, fresh = (Log.open(builder.directory, high_watermark=given_mark) for _ in range(2))
                if before is not None:
                    followed.go_on_from(before)
                assert followed.last_stable_offset == fresh.last_stable_offset
                ends = range(0, builder.next_offset + 1, max(1, builder.next_offset // 4))
                for start, end in [(a, b) for a in ends for b in ends if a < b]:
                    assert followed.aborted_transactions(start, end) == fresh.aborted_transactions(start, end)
                before = followed
                fresh.close()
                followed.close()
        builder.close()


def opened_again(folder: Path, *appended: bytes) -> Log:
    """Return a log with an open transaction that was asked for its end, grew, and was opened again; every batch is indexed."""
    builder = build.LogBuilder(folder / "t-0", interval_bytes=0)
    first = build.batch(0, [0], producer=Producer(1, 0, 0), transactional=True)
    builder.append(first, *appended).close()
    path = builder.file(0, ".log")
    whole = {one: one.read_bytes() for one in (path, path.with_suffix(".index"))}
    for one, size in zip(whole, (len(first), 0), strict=True):
        os.truncate(one, size)
    before = Log.open(folder / "t-0")
    assert before.last_stable_offset == 0
    for one, data in whole.items():
        one.write_bytes(data)
    after = Log.open(folder / "t-0")
    after.go_on_from(before)
    return after


def test_a_damaged_marker_is_found_behind_what_was_checked(tmp_path: Path) -> None:
    marker = bytearray(build.marker(1, 1, ControlType.COMMIT, 1))
    marker[22] ^= 0x20  # It is a batch of records now.
    log = opened_again(tmp_path, bytes(marker), *(build.batch(offset, [offset]) for offset in range(2, 6)))
    with pytest.raises(CorruptBatchError):
        assert log.last_stable_offset == 0


def test_an_open_transaction_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened_again(tmp_path, build.batch(1, [1], producer=Producer(1, 0, 1), transactional=True))
    checked: list[int] = []
    monkeypatch.setattr(transactions, "check_crc", lambda header, *_: checked.append(header.base_offset))
    assert log.last_stable_offset == 0
    assert checked == []
