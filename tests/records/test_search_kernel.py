"""The first record by time, found by one call: what the steps find, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.strategies import Batch, batches
from tidelog.records import kernel as installed
from tidelog.records.batch import iter_headers
from tidelog.records.kernel import first_match
from tidelog.records.records import first_record_at

pytestmark = pytest.mark.skipif(not installed.COMPILED, reason="interpreted it finds nothing, and the steps are taken")


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: the interpreted kernel has no part in this."""


@examples(150)
@given(
    parts=st.lists(batches(), min_size=1, max_size=3),
    timestamp=st.integers(0, 2**63 - 1) | st.integers(0, 10),
    skipped=st.integers(0, 5),
    damage=st.none() | st.tuples(st.integers(0, 2**16), st.integers(1, 255)),
)
def test_what_is_found_is_right(parts: list[Batch], timestamp: int, skipped: int, damage: tuple[int, int] | None) -> None:
    data = bytearray(b"".join(bytes(part.data) for part in parts))
    first = next(iter_headers(data)).base_offset
    offset = first + skipped
    found = first_match(bytes(data), -1, offset, timestamp, offset)
    if found is not None:
        # All batches before the one with the record are too early, and it is that one's first.
        for header in iter_headers(data):
            if header.last_offset < offset or header.max_timestamp < timestamp:
                continue
            record = first_record_at(header, data[header.position : header.end_position], timestamp, offset)
            assert record == found[:2] and found[2] == header.leader_epoch
            break
    if damage is not None:
        at, mask = damage
        data[at % len(data)] ^= mask
        first_match(bytes(data), -1, offset, timestamp, offset)  # whatever is there, it ends


@examples(100)
@given(data=st.binary(max_size=200), timestamp=st.integers(-(2**63), 2**63 - 1))
def test_bytes_of_anything(data: bytes, timestamp: int) -> None:
    first_match(data, -1, 0, timestamp, 0)
    first_match(data, 3, 0, timestamp, -(2**63))
