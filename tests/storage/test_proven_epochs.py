"""A `leader-epoch-checkpoint` that was lost or forged: what the batches contradict is taken from them, all else stays."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import batch, headers, messages, open_log
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.names import LEADER_EPOCH_CHECKPOINT, file_name
from tidelog.storage.loading import loader, proven_epochs
from tidelog.storage.partition.partition_log import PartitionLog

SIZE = len(batch())
SMALL: dict[str, int] = {"segment_bytes": 6 * SIZE, "index_interval_bytes": SIZE, "file_delete_delay_ms": 0}
TAKEN = "rebuilding all epochs from the log"


def entries(log: PartitionLog) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in log.leader_epochs.entries]


def text_of(found: list[tuple[int, int]]) -> str:
    return "".join(f"{line}\n" for line in ("0", len(found), *(f"{epoch} {offset}" for epoch, offset in found)))


def filled(folder: Path, epochs: list[int], **properties: int) -> Path:
    """A log of one record each, in these leader epochs, closed; its checkpoint."""
    log = open_log(folder, **{**SMALL, **properties})
    for epoch in epochs:
        log.append_as_leader(batch(), epoch)
    log.close()
    return log.directory / LEADER_EPOCH_CHECKPOINT


# --- one by one

EPOCHS = [0] * 4 + [2] * 5 + [3] * 6 + [7] * 5
TRUE = [(0, 0), (2, 4), (3, 9), (7, 15)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("forged", "offset", "found"),
    [
        (None, 19, None),
        ("", 19, None),
        ("0\n", 19, None),
        ("0\n0\n", 19, None),
        (text_of([(9, 0)]), 0, 9),
        (text_of([(7, 0)]), 0, 7),
        (text_of(TRUE[:-1]), 15, 3),
        (text_of(TRUE[:-2]), 9, 2),
        (text_of([(0, 0), (2, 4), (7, 15)]), 9, 2),
        (text_of([(0, 0), (3, 9), (7, 15)]), 4, 0),
        (text_of([*TRUE[:3], (7, 14)]), 14, 7),
        (text_of([*TRUE[:3], (7, 16)]), 15, 3),
        (text_of([*TRUE[:3], (8, 15)]), 15, 8),
        (text_of([*TRUE, (8, 18)]), 18, 8),
        (text_of([(0, 0), (1, 4), *TRUE[2:]]), 4, 1),
        (text_of([(0, 0), (1, 2), *TRUE[1:]]), 2, 1),
        (text_of([*TRUE[:3], (7, 900)]), 15, 3),
        (text_of([(7, 900)]), 19, None),
    ],
)
def test_forged(
    tmp_path: Path, forged: str | None, offset: int, found: int | None, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path, EPOCHS)
    path.unlink() if forged is None else path.write_text(forged)
    log = open_log(tmp_path, clean=clean, recovery_point=20 if clean else 12, **SMALL)
    assert entries(log) == TRUE
    assert LeaderEpochs.read(path).entries == TRUE
    said = [message for message in caplog.messages if TAKEN in message]
    if clean:
        expected = EPOCHS[offset]
        shown = "none" if found is None else found
        assert said == [f"{path}: found leader epoch {shown} for offset {offset}, expected {expected} as in its batch: {TAKEN}"]
    assert len(said) <= 1
    caplog.clear()
    log.close()
    assert entries(open_log(tmp_path, **SMALL)) == TRUE
    assert not caplog.messages


@pytest.mark.parametrize(
    "left",
    [
        [*TRUE, (8, 20)],  # Of a leader that wrote nothing.
        [*TRUE, (8, 25)],  # Of one that wrote what is truncated now.
        TRUE[1:],  # Records were deleted, and the log start is lost.
        [(2, 6), *TRUE[2:]],
        [(7, 17)],
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_what_kafka_leaves_stays(
    tmp_path: Path, left: list[tuple[int, int]], clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, EPOCHS).write_text(text_of(left))
    log = open_log(tmp_path, clean=clean, recovery_point=20, **SMALL)
    assert entries(log) == [entry for entry in left if entry[1] < 20]
    assert not [message for message in caplog.messages if TAKEN in message]


@pytest.mark.parametrize("forged", [[(9, 0)], [(0, 0)], [(1, 3)]])
def test_where_epochs_go_back_the_file_is_believed(
    tmp_path: Path, forged: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path, [0, 0, 3, 3, 1, 1, 4, 4])
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0), (1, 4), (4, 6)], "one that goes back drops those above it"
    path.write_text(text_of(forged))
    assert entries(open_log(tmp_path, **SMALL)) == forged
    assert not caplog.messages


def test_before_the_first_file_was_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A crash that came sooner: recovery finds every epoch, and nothing was lost."""
    filled(tmp_path, EPOCHS).unlink()
    assert entries(open_log(tmp_path, clean=False, **SMALL)) == TRUE
    assert not [message for message in caplog.messages if TAKEN in message]


def test_batches_without_epochs_contradict_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """v2 without an epoch, and messages of v1, after which the epochs begin anew."""
    log = open_log(tmp_path, **SMALL)
    log.append_as_leader(batch(), 0)
    log.append_as_follower(batch(1, leader_epoch=-1))
    log.append_as_follower(messages(2))
    log.append_as_follower(batch(3, leader_epoch=4))
    log.append_as_follower(batch(4, leader_epoch=-1))
    log.close()
    assert entries(open_log(tmp_path, **SMALL)) == [(4, 3)]
    assert not caplog.messages
    (log.directory / LEADER_EPOCH_CHECKPOINT).write_text(text_of([(1, 3)]))
    assert entries(open_log(tmp_path, **SMALL)) == [(4, 3)]
    assert len(caplog.messages) == 1


def test_only_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, **SMALL)
    for offset in range(9):
        log.append_as_follower(messages(offset))
    log.close()
    assert entries(open_log(tmp_path, **SMALL)) == []
    (log.directory / LEADER_EPOCH_CHECKPOINT).write_text(text_of([(1, 3)]))
    assert entries(open_log(tmp_path, **SMALL)) == [(1, 3)]
    assert not caplog.messages


def test_epochs_whose_batches_were_compacted_away_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, **SMALL)
    for offset, epoch in ((0, 0), (1, 0), (8, 2), (9, 2)):
        log.append_as_follower(batch(offset, leader_epoch=epoch))
    log.close()
    path = log.directory / LEADER_EPOCH_CHECKPOINT
    kept = [(0, 0), (1, 4), (2, 6)]
    path.write_text(text_of(kept))
    assert entries(open_log(tmp_path, **SMALL)) == kept
    assert not caplog.messages
    path.write_text(text_of([(0, 0), (2, 6), (3, 9)]))
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0), (2, 6)], "the start that fits its gap stays"


def test_an_index_that_leads_elsewhere_only_costs_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled(tmp_path, EPOCHS)
    for base in (0, 6, 12):
        (path.parent / file_name(base, ".index")).write_bytes((1).to_bytes(4, "big") + (5 * SIZE).to_bytes(4, "big"))
    assert entries(open_log(tmp_path, **SMALL)) == TRUE
    path.write_text(text_of([(0, 0), (2, 3), *TRUE[2:]]))
    assert not [message for message in caplog.messages if TAKEN in message]
    assert entries(open_log(tmp_path, **SMALL)) == TRUE


def test_what_only_an_index_contradicts_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, EPOCHS).write_text(text_of(TRUE[1:]))
    lie = proven_epochs._Contradiction(6, 2, 9)
    monkeypatch.setattr(proven_epochs._EpochProof, "find_contradiction", lambda *_, **__: lie)
    assert entries(open_log(tmp_path, **SMALL)) == TRUE[1:]


def test_the_batch_before_an_entry_may_be_in_the_segment_before(tmp_path: Path) -> None:
    path = filled(tmp_path, [0] * 5 + [1] * 5)
    assert (path.parent / file_name(6, ".log")).exists()
    path.write_text(text_of([(0, 0), (1, 6)]))
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0), (1, 5)]


def test_an_entry_within_a_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, **SMALL)
    log.append_as_leader(batch(count=3), 0)
    log.close()
    (log.directory / LEADER_EPOCH_CHECKPOINT).write_text(text_of([(0, 0), (1, 2)]))
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0)]


def test_so_many_entries_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_epochs, "MAX_ENTRIES", 2)
    path = filled(tmp_path, EPOCHS)
    path.write_text(text_of([(0, 0), (1, 4), *TRUE[2:]]))
    assert entries(open_log(tmp_path, **SMALL)) == TRUE, "the batch before the second newest is looked at, too"
    path.write_text(text_of([(0, 0), (2, 2), *TRUE[2:]]))
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0), (2, 2), *TRUE[2:]]


def test_an_intact_log_is_not_read_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, [0] * 300 + [1] * 300 + [2] * 300, segment_bytes=1 << 20)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("all headers were read")

    monkeypatch.setattr(proven_epochs, "reread_epochs", refuse)
    assert entries(open_log(tmp_path, **SMALL)) == [(0, 0), (1, 300), (2, 600)]


# --- random histories

Step = tuple[str, int, int]
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 3)),
        *[st.tuples(st.just("append"), st.integers(-5, 1).map(lambda rise: max(rise, 0)), st.integers(1, 2))] * 3,
        st.tuples(st.just("lead"), st.integers(1, 2), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 9), st.booleans().map(int)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
    ),
    min_size=6,
    max_size=50,
)
Forge = Callable[[list[tuple[int, int]]], list[tuple[int, int]] | None]


def live(log: PartitionLog, steps: list[Step], gaps: bool) -> None:
    epoch = 0
    for number, (what, first, second) in enumerate(steps):
        if what == "append":
            epoch += first
            gap = number % 3 if gaps else 0
            log.append_as_follower(batch(log.log_end_offset + gap, count=second, leader_epoch=epoch))
        elif what == "lead":
            epoch += first
            log.maybe_assign_epoch_start_offset(epoch, log.log_end_offset)
        elif what == "truncate":
            kept = [header for header in headers(log) if header.base_offset >= log.log_start_offset]
            if kept:
                log.truncate_to(kept[min(len(kept) - 1, first * len(kept) // 10)].base_offset)
            # What is fetched then may be of any epoch from the newest left on.
            epoch = max([log.leader_epochs.latest_epoch or 0, *(header.leader_epoch for header in headers(log))])
        elif what == "delete":
            log.update_high_watermark(log.log_end_offset)
            log.maybe_increment_log_start_offset(log.log_start_offset + (log.log_end_offset - log.log_start_offset) * first // 10)
            if second:
                log.delete_old_segments()
        elif log.segments.active.size_bytes:
            log.roll()


@st.composite
def forgeries(draw: st.DrawFn) -> Forge:
    how = draw(st.sampled_from(["lost", "empty", "drop", "epoch", "offset", "shift", "shift", "add", "other"]))
    place, epoch, offset = draw(st.integers(0, 30)), draw(st.integers(0, 12)), draw(st.integers(0, 80))
    other = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 80)), max_size=5))

    def forge(true: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        found = list(true)
        at = place % len(found) if found else 0
        if how == "lost":
            return None
        if how == "empty" or (how != "other" and not found):
            return []
        if how == "drop":
            del found[at]
        elif how == "epoch":
            found[at] = epoch, found[at][1]
        elif how == "offset":
            found[at] = found[at][0], offset
        elif how == "shift":
            found[at] = found[at][0], max(found[at][1] + place % 7 - 3, 0)
        elif how == "add":
            found.insert(at, (epoch, offset))
        else:
            return sorted(other)
        return found

    return forge


def contradicts(log: PartitionLog, epochs: LeaderEpochs) -> bool:
    """Whether any batch does: offset for offset."""
    earliest = epochs.earliest
    start = max(log.log_start_offset, 0 if earliest is None else earliest.start_offset)
    return any(
        epochs.epoch_for_offset(offset) != header.leader_epoch
        for header in headers(log)
        for offset in range(max(header.base_offset, start), header.next_offset)
    )


@contextmanager
def heard() -> Iterator[list[str]]:
    """What the storage says meanwhile of epochs."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    listener, logger = Listener(logging.WARNING), logging.getLogger("tidelog.storage")
    logger.addHandler(listener)
    try:
        yield messages
    finally:
        logger.removeHandler(listener)
        messages[:] = [message for message in messages if TAKEN in message]


@examples(600)
@given(HISTORIES, forgeries(), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10))
def test_random_histories(steps: list[Step], forge: Forge, gaps: bool, clean: bool, keeps_start: bool, tenths: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = open_log(folder, **SMALL)
        live(log, steps, gaps)
        start = log.log_start_offset if keeps_start else 0
        recovery_point = log.log_end_offset * tenths // 10
        log.close() if clean else log.close_handlers()
        log.leader_epochs.flush()
        path = folder / "log-0" / LEADER_EPOCH_CHECKPOINT
        true = LeaderEpochs.read(path).entries if path.exists() else []

        def reopened(folder: Path) -> PartitionLog:
            return open_log(folder, clean=clean, recovery_point=recovery_point, log_start_offset=start, **SMALL)

        # Undamaged: nothing that Kafka loads changes. Unless all records were deleted, and are back, as the log start is lost.
        shutil.copytree(folder / "log-0", folder / "plain" / "log-0")
        with mock.patch.object(loader, "prove_epochs"):
            plain = reopened(folder / "plain")
        expected = LeaderEpochs(plain.leader_epochs.entries)
        shutil.copytree(folder / "log-0", folder / "intact" / "log-0")
        with heard() as said:
            intact = reopened(folder / "intact")
        if expected.entries or not contradicts(intact, expected):
            assert intact.leader_epochs.entries == plain.leader_epochs.entries
            assert not said

        forged = forge([tuple(entry) for entry in true])
        path.unlink(missing_ok=True) if forged is None else path.write_text(text_of(forged))
        cut = LeaderEpochs(EpochEntry(*entry) for entry in forged or [])
        cut.truncate_from_end(intact.log_end_offset)
        cut.truncate_from_start(start)
        with heard() as said:
            log = reopened(folder)
        assert log.log_end_offset == intact.log_end_offset
        found = LeaderEpochs(log.leader_epochs.entries)
        assert not contradicts(log, found)
        assert len(said) <= 1
        is_seen = contradicts(log, cut)
        if clean:
            assert len(said) == is_seen
            if not is_seen:
                assert found.entries == cut.entries, "what no batch contradicts is believed"
        if found.earliest is None:
            assert not contradicts(log, LeaderEpochs()), "there is nothing to know"
        elif not gaps and expected.earliest is not None:
            end, least = log.log_end_offset, max(found.earliest.epoch, expected.earliest.epoch)
            for epoch in range(least, 60):
                assert found.end_offset_for(epoch, end) == expected.end_offset_for(epoch, end), epoch
        for one in (plain, intact, log):
            one.close_handlers()
