"""A coordinator's batch is the same, built by the kernel and by `builder`, from entries and from the rows of a commit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.offset_records import offset_entries
from tidelog.model import TopicPartition
from tidelog.records import kernel, state_batches
from tidelog.records.builder import NO_PRODUCER, Producer
from tidelog.records.compression import Codec

parts = st.binary(max_size=70) | st.integers(100, 40_000).map(bytes)


@pytest.mark.skipif(not kernel.COMPILED, reason="interpreted, the kernel builds nothing")
@examples(150)
@given(st.lists(st.tuples(parts, st.none() | parts), min_size=1, max_size=130), st.integers(0, 2**62), st.booleans())
def test_both_build_the_same(entries: list[tuple[bytes, bytes | None]], now_ms: int, is_transactional: bool) -> None:
    producer = Producer(2**40, 7, 2**31 - 1) if is_transactional else NO_PRODUCER
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "build_state_batch", lambda *_: None)
        slow = state_batches.build_state_batch(entries, now_ms, Codec.NONE, producer, is_transactional=is_transactional)
    fast = kernel.build_state_batch(entries, now_ms, *producer, is_transactional)
    assert fast == slow or (fast is None and len(slow) > (1 << 20) - 60 * len(entries))


@pytest.mark.skipif(not kernel.COMPILED, reason="interpreted, the kernel builds nothing")
def test_what_the_kernel_leaves() -> None:
    assert kernel.build_state_batch([], 5, -1, -1, -1, False) is None
    assert kernel.build_state_batch([(b"k", b"v")], -1, -1, -1, -1, False) is None
    assert kernel.build_state_batch([(b"k", b"v")], 5, -1, -1, -1, True) is None


LONGEST = 20
names = st.text("az09._-", min_size=1, max_size=30) | st.sampled_from(["x" * 249, "größe", "x" * 40_000, ""])
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text("az", max_size=LONGEST + 1) | st.sampled_from(["ü", "\U0001f600", "\udc80"])
offsets = st.tuples(int32, int64, int32, st.just(-1) | int64, texts).map(list)
rows = st.tuples(names, st.none(), st.lists(offsets, max_size=20)).map(list)


@pytest.mark.skipif(not kernel.COMPILED, reason="interpreted, the kernel builds nothing")
@examples(300)
@given(names, st.lists(rows, max_size=5), st.integers(-1, 2**62))
def test_a_commits_batch_is_that_of_its_entries(group: str, topics: list[list[Any]], now_ms: int) -> None:
    batch = kernel.build_commit_batch(group, topics, now_ms, LONGEST)
    named = [(name, one[0]) for name, _, partitions in topics for one in partitions]
    every = [group, *(topic[0] for topic in topics), *(one[4] or "" for topic in topics for one in topic[2])]
    is_usual = (
        now_ms >= 0
        and bool(named)
        and all(topic[2] for topic in topics)
        and len(set(named)) == len(named)
        and len({topic[0] for topic in topics}) == len(topics)
        and all(text.isascii() and len(text) < 2**15 for text in every)
        and all(len(one[4] or "") <= LONGEST for topic in topics for one in topic[2])
    )
    assert (batch is not None) == is_usual
    if batch is None:
        return
    committed = [
        (TopicPartition(name, index), CommittedOffset(offset, epoch, metadata or "", now_ms if at_ms == -1 else at_ms))
        for name, _, partitions in topics
        for index, offset, epoch, at_ms, metadata in partitions
    ]
    assert batch == state_batches.build_state_batch(offset_entries(group, committed), now_ms, Codec.NONE)
