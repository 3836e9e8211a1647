"""The shortcut of an ordinary append and the rules it stands for: what it takes, it takes as they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.helpers import with_right_crc
from tidelog.errors import TidelogError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, BatchHeader, check_crc, iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.kernel import COMPILED, take_plain_batch
from tidelog.records.records import Record
from tidelog.records.validation import ValidationRules, validate_and_assign_offsets
from tidelog.records.validation_rules import time_bounds

NOW_MS = 1_700_000_000_000
compiled = pytest.mark.skipif(not COMPILED, reason="interpreted, it takes nothing")


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: the shortcut has its own kernel."""


def plain(count: int = 3, **options: object) -> bytearray:
    records = [Record(i, NOW_MS - i, CREATE_TIME, b"key", b"value") for i in range(count)]
    return build_batch_v2(records, **options)  # type: ignore[arg-type]


def take(data: bytearray, rules: ValidationRules, base_offset: int = 77, now_ms: int = NOW_MS) -> BatchHeader | None:
    low, high = time_bounds(rules, now_ms)
    append_time = now_ms if rules.timestamp_type == LOG_APPEND_TIME else -1
    fields = take_plain_batch(data, base_offset, rules.leader_epoch, low, high, rules.is_compacted, append_time)
    return None if fields is None else BatchHeader._make(fields)


def by_the_rules(data: bytearray, rules: ValidationRules, base_offset: int = 77, now_ms: int = NOW_MS) -> BatchHeader:
    """What analysis and validation make of the same; the buffer is changed as well."""
    (header,) = iter_headers(data)
    if header.size != len(data) or header.base_offset != 0:
        raise ValueError("not for this")
    check_crc(header, data)
    validated = validate_and_assign_offsets(data, [header], rules, base_offset=base_offset, now_ms=now_ms)
    if validated.data is not data:
        raise ValueError("not in place")
    return validated.headers[0]


@compiled
@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, LOG_APPEND_TIME])
@pytest.mark.parametrize(
    "options", [{}, {"producer": Producer(5, 1, 9)}, {"producer": Producer(5, 1, 0), "is_transactional": True}]
)
def test_an_ordinary_batch(options: dict[str, object], timestamp_type: int) -> None:
    rules = ValidationRules(timestamp_type=timestamp_type, leader_epoch=4)
    one, other = plain(**options), plain(**options)
    assert take(one, rules) == by_the_rules(other, rules)
    assert one == other
    assert next(iter_headers(one)).max_timestamp == NOW_MS


@compiled
def test_a_wrong_largest_timestamp_is_put_right() -> None:
    one = plain()
    one[35:43] = (NOW_MS + 5).to_bytes(8)
    one = with_right_crc(one)
    other = bytearray(one)
    rules = ValidationRules()
    assert take(one, rules) == by_the_rules(other, rules)
    assert one == other


@compiled
@pytest.mark.parametrize(
    "data",
    [
        plain(codec=Codec.LZ4),
        plain(timestamp_type=LOG_APPEND_TIME, append_time=NOW_MS),
        plain(base_offset=0) + b"\0",
        plain() + plain(),
        plain()[:-1],
        plain()[:61],
        bytearray(61),
        build_batch_v2([Record(5, 1, CREATE_TIME, None, b"v")]),
        build_batch_v2([Record(0, 1, CREATE_TIME, None, b"v"), Record(2, 1, CREATE_TIME, None, b"v")]),
        plain(producer=Producer(5, 1, -1)),
        plain(producer=Producer(5, 1, 0), is_control=True, is_transactional=True),
        plain(delete_horizon_ms=5),
        with_right_crc(plain()[:16] + b"\1" + plain()[17:]),
        plain()[:70] + b"\xff" + plain()[71:],
        with_right_crc(plain()[:69] + b"\x7f" + plain()[70:]),
        with_right_crc(plain()[:57] + b"\0\0\0\4" + plain()[61:]),
    ],
)
def test_what_it_does_not_take_it_leaves_as_it_was(data: bytearray) -> None:
    before = bytes(data)
    assert take(bytearray(data), ValidationRules()) is None
    buffer = bytearray(data)
    take(buffer, ValidationRules())
    assert buffer == before


@compiled
def test_keys_and_times_that_are_asked_for() -> None:
    unkeyed = build_batch_v2([Record(0, NOW_MS, CREATE_TIME, None, b"v")])
    assert take(bytearray(unkeyed), ValidationRules(is_compacted=True)) is None
    assert take(bytearray(unkeyed), ValidationRules()) is not None
    assert take(plain(), ValidationRules(before_max_ms=1)) is None
    assert take(plain(), ValidationRules(before_max_ms=2)) is not None
    timeless = build_batch_v2([Record(0, -1, CREATE_TIME, None, b"v")])
    assert take(timeless, ValidationRules(before_max_ms=1)) is not None


records = st.lists(
    st.tuples(
        st.integers(-1, 2**40),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


@given(
    records,
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=2),
    st.booleans(),
    st.builds(
        ValidationRules,
        timestamp_type=st.sampled_from([CREATE_TIME, LOG_APPEND_TIME]),
        before_max_ms=st.sampled_from([2**63 - 1, 2**39]),
        after_max_ms=st.sampled_from([2**63 - 1, 2**39]),
        is_compacted=st.booleans(),
        leader_epoch=st.integers(0, 2**31 - 1),
    ),
)
@examples(250)
def test_it_is_never_of_another_opinion(
    fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    damage: list[tuple[int, int]],
    with_crc: bool,
    rules: ValidationRules,
) -> None:
    """Sound batches and damaged ones, with a right checksum and with a wrong one: taken means taken by the rules, to the byte."""
    data = build_batch_v2(
        [Record(i, time, CREATE_TIME, key, value, tuple(headers)) for i, (time, key, value, headers) in enumerate(fields)]
    )
    for index, mask in damage:
        data[index % len(data)] ^= mask
    if damage and with_crc and data[16] == 2:
        data = with_right_crc(data)
    one, other = bytearray(data), bytearray(data)
    taken = take(one, rules, now_ms=2**39)
    if taken is None:
        assert one == data
        if COMPILED and not damage:
            with pytest.raises(TidelogError):
                by_the_rules(other, rules, now_ms=2**39)
        return
    assert taken == by_the_rules(other, rules, now_ms=2**39)
    assert one == other
    assert next(iter_headers(one)) == taken
    check_crc(taken, one)
