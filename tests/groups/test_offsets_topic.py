"""Java's hash of ids, which says where their records are: equal to its definition, and fast for ids of any length."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.offsets_topic import MAX_CACHED, java_hash, partition_of

LONG = 32_767
"""Bytes of the longest string of the protocol."""


def by_definition(text: str) -> int:
    """Return s[0]*31^(n-1) + s[1]*31^(n-2) + ... + s[n-1], an int32; 0 for the one whose absolute value is none."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) % 2**32
    return 0 if value == 2**31 else value - 2**32 if value > 2**31 else value


@given(st.text(st.characters(), max_size=30), st.integers(0, 60), st.text(st.characters(), max_size=300))
def test_any_text(piece: str, times: int, end: str) -> None:
    text = piece * times + end
    assert java_hash(text) == by_definition(text)
    assert partition_of(text, 50) == abs(by_definition(text)) % 50


@pytest.mark.parametrize("length", [MAX_CACHED, MAX_CACHED + 1, 256, 257, 258, 513, 514, 515, LONG - 1, LONG])
@pytest.mark.parametrize("letter", ["\0", "x", "\uffff", "\ud800", "\U0001f600"])
def test_long_texts(length: int, letter: str) -> None:
    for text in (letter * length, "a" + letter * (length - 1)):
        assert java_hash(text) == by_definition(text)


def test_long_ids_take_less_than_a_loop_over_their_letters() -> None:
    def seconds(text: str, *, by_loop: bool) -> float:
        began = time.thread_time()
        by_definition(text) if by_loop else java_hash(text)
        return time.thread_time() - began

    text = "x" * LONG
    assert min(seconds(text, by_loop=False) for _ in range(9)) < min(seconds(text, by_loop=True) for _ in range(9)) / 3


def test_long_ids_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(200):
            java_hash(f"{number}-" + "x" * 32_000)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
