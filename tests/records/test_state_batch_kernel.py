"""A coordinator's batch is the same, built by the kernel and by `builder`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
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
