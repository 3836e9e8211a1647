"""A log is cut while others use it: which producers stay is found out before, some batches at a time, and cut at once then."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.compacting import append, commit, producer
from tests.storage.partition_logs import headers, open_log
from tidelog.storage.loading import producer_rebuild
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_state_manager import ProducerStateManager

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> tuple[int, T]:
    """Return how many steps there were, and what came of them."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def write(log: PartitionLog, story: list[str]) -> None:
    writers = {
        "idempotent": producer(log, 1, transactional=False),
        "other": producer(log, 2, transactional=False),
        "transactional": producer(log, 3),
    }
    is_open = False
    for number, what in enumerate(story):
        if what in writers:
            writers[what](number)
            is_open |= what == "transactional"
        elif what == "roll":
            log.roll()
        elif what == "commit" and is_open:
            commit(log, 3)
            is_open = False
        else:
            append(log, number, number)


def known(log: PartitionLog) -> Any:
    state = log.producer_state
    return (
        dict(state.active_producers.items()),
        state.first_unstable_offset,
        state.first_undecided_offset,
        state.map_end_offset,
        log.log_end_offset,
        log.log_start_offset,
        log.high_watermark,
        log.leader_epochs.entries,
        [(one.base_offset, one.size_bytes) for one in log.segments],
    )


STORIES = st.lists(st.sampled_from(["idempotent", "other", "transactional", "commit", "plain", "roll"]), min_size=1, max_size=30)


@given(story=STORIES, more=STORIES, cut=st.integers(0, 40), again=st.integers(0, 40), at_once=st.integers(1, 4))
@examples(150)
def test_the_same_is_left_as_by_a_cut_at_once(story: list[str], more: list[str], cut: int, again: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(producer_rebuild, "AT_ONCE", at_once)
        logs = []
        for name in ("in-steps", "at-once"):
            Path(folder, name).mkdir()
            logs.append(open_log(Path(folder, name)))
        in_steps, at_once_ = logs
        for log in logs:
            write(log, story)
        for target in (min(cut, in_steps.log_end_offset), min(again, in_steps.log_end_offset)):
            before, files = known(in_steps), sorted(path.name for path in in_steps.directory.iterdir())
            _, found = finished(in_steps.producers_at(target))
            assert known(in_steps) == before, "looking changes nothing"
            assert sorted(path.name for path in in_steps.directory.iterdir()) == files
            assert in_steps.truncate_to(target, found) == at_once_.truncate_to(target)
            assert known(in_steps) == known(at_once_)
        for log in logs:
            write(log, [one for one in more if one in ("plain", "roll")])
        assert known(in_steps) == known(at_once_)
        for log in logs:
            log.close()
        reopened = [open_log(Path(folder, name)) for name in ("in-steps", "at-once")]
        assert known(reopened[0])[:4] == known(reopened[1])[:4]
        for log in reopened:
            log.close()


def test_a_step_looks_at_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much lies between the last snapshot and the cut: no step takes longer for it."""
    log = open_log(tmp_path)
    writing = producer(log, 1, transactional=False)
    for number in range(600):
        writing(number)
    replayed = 0
    replay = ProducerStateManager.replay

    def counted(*args: Any) -> Any:
        nonlocal replayed
        replayed += 1
        return replay(*args)

    monkeypatch.setattr(ProducerStateManager, "replay", counted)
    steps = log.producers_at(550)
    in_a_step = []
    found = None
    while True:
        before = replayed
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        finally:
            in_a_step.append(replayed - before)
    assert sum(in_a_step) == 550 == len([one for one in headers(log) if one.base_offset < 550])
    assert max(in_a_step) <= producer_rebuild.AT_ONCE
    before = replayed
    assert log.truncate_to(550, found)
    assert replayed == before, "all was known"
    assert log.producer_state.active_producers[1].last_sequence == 549
    log.close()


def test_what_does_not_fit_is_not_taken(tmp_path: Path) -> None:
    """What was found for one offset is of no use at another."""
    log = open_log(tmp_path)
    writing = producer(log, 1, transactional=False)
    for number in range(10):
        writing(number)
    _, found = finished(log.producers_at(8))
    log.truncate_to(4, found)
    assert log.producer_state.active_producers[1].last_sequence == 3
    log.close()
