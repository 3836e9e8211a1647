"""Properties: on damage under a right checksum, the compiled and the interpreted kernel say the same, records or error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.helpers import raw_batch_v2, with_right_crc
from tests.records.kernels import KERNELS
from tests.records.strategies import Batch, batches
from tests.records.test_damage import read
from tidelog.records import columns, records, scanner


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: each test here takes both."""


damages = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=4)


@examples(200)
@given(batch=batches(), damage=damages)
def test_damage_under_a_right_checksum(batch: Batch, damage: list[tuple[int, int]]) -> None:
    """Bytes that a wrong program wrote and summed up: both kernels say the same, records or error."""
    broken = bytearray(batch.data)
    for index, mask in damage:
        broken[12 + index % (len(broken) - 12)] ^= mask
    if broken[16] <= 2:
        broken = with_right_crc(broken)
    assert_same(broken)


@examples(200)
@given(section=st.binary(max_size=80), count=st.integers(-2, 12), base=st.sampled_from([0, -1, 2**63 - 1, -(2**63)]))
def test_sections_of_anything(section: bytes, count: int, base: int) -> None:
    """A records section of random bytes."""
    assert_same(raw_batch_v2(section, count, base_offset=abs(base) % 2**63, base_timestamp=base))


@examples(100)
@given(batch=batches(), index=st.integers(0, 2**16), value=st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), repeat=st.integers(1, 12))
def test_long_varints_and_lengths(batch: Batch, index: int, value: int, repeat: int) -> None:
    """Runs of one byte: endless varints, lengths of 0, of -1, and of the largest."""
    broken = bytearray(batch.data)
    start = 61 if batch.magic == 2 else 18
    at = start + index % max(1, len(broken) - start)
    run = bytes((value,)) * min(repeat, len(broken) - at)
    broken[at : at + len(run)] = run
    assert_same(with_right_crc(broken))


def assert_same(data: bytes | bytearray) -> None:
    """Both kernels give the same records, or the same error."""
    answers = []
    for chosen in KERNELS.values():
        with pytest.MonkeyPatch.context() as patch:
            for module in (columns, records, scanner):
                patch.setattr(module, "kernel", chosen)
            found = read(data)
        answers.append(found if isinstance(found, list) else (type(found), str(found)))
    assert all(answer == answers[0] for answer in answers)
