"""State machines: each has one table, by which the code refuses a move, and which docs/states.md shows."""

from __future__ import annotations

import importlib
import re
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.broker.coordinators.groups.group import Group, GroupState
from tidelog.broker.coordinators.transactions import transaction
from tidelog.broker.coordinators.transactions.transaction import Transaction, TransactionState, initialized
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import IllegalStateError, InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.storage.compaction.cleaner_manager import CleanerManager, CleaningState
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.partitions import Partitions, PartitionState
from tidelog.storage.scheduler import Scheduler
from tidelog.transitions import Transitions, checked, name_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
MODULES = sorted(
    str(path.relative_to(ROOT / "src").with_suffix("")).replace("/", ".")
    for path in (ROOT / "src" / "tidelog").rglob("*.py")
    if re.search(r"^TRANSITIONS\b", path.read_text(encoding="utf-8"), re.MULTILINE)
)
KEY = TopicPartition("orders", 0)


def as_markdown(transitions: Transitions[Any]) -> str:
    """Return the table as a page shows it: a row a move, in the order of the code."""
    rows = [
        f"| {name_of(before)} | {name_of(after)} | {why} |"
        for before, moves in transitions.items()
        for after, why in moves.items()
    ]
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])


def as_picture(transitions: Transitions[Any]) -> str:
    """Return the table as a picture: an arrow a move."""
    nodes = {None: "[*]"} | {state: f"s{index}" for index, state in enumerate(transitions) if state is not None}
    lines = [f"    {node} : {name_of(state)}" for state, node in nodes.items() if state is not None]
    lines += [f"    {nodes[before]} --> {nodes[after]}" for before, moves in transitions.items() for after in moves]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def table_of(module: str) -> dict[Any, dict[Any, str]]:
    return importlib.import_module(module).TRANSITIONS  # type: ignore[no-any-return]


def test_all_are_found() -> None:
    assert len(MODULES) >= 4 and "tidelog.transitions" not in MODULES
    assert re.findall(r"^`src/(.*)\.py`:$", PAGE, re.MULTILINE) == [module.replace(".", "/") for module in MODULES]


@pytest.mark.parametrize("module", MODULES)
def test_a_table(module: str) -> None:
    """It is shown as it is; it goes nowhere that it does not know; its states are its enum's, but for what is never entered."""
    table = table_of(module)
    assert f"{as_picture(table)}\n\n{as_markdown(table)}\n" in PAGE
    targets = {after for moves in table.values() for after in moves}
    assert targets <= table.keys()
    assert {type(state) for state in table if state is not None} == {type(next(state for state in table if state is not None))}
    reached, due = {None}, [None]
    while due:
        new = table[due.pop()].keys() - reached
        reached |= new
        due += new
    assert reached == table.keys()


@pytest.mark.parametrize("module", MODULES)
def test_only_what_is_in_the_table_is_done(module: str) -> None:
    table = table_of(module)
    kind: type[Enum] = type(next(state for state in table if state is not None))
    for before in (None, *kind):
        for after in (None, *kind):
            if after in table.get(before, {}):
                assert checked(table, before, after, "it") is after
            else:
                with pytest.raises(IllegalStateError, match=re.escape(f"it cannot go from {name_of(before)}")):
                    checked(table, before, after, "it")


@examples(100)
@given(steps=st.lists(st.sampled_from(GroupState), max_size=12), first=st.sampled_from(GroupState))
def test_a_group_goes_by_its_table(steps: list[GroupState], first: GroupState) -> None:
    table = table_of("tidelog.broker.coordinators.groups.group")
    if first not in table[None]:
        with pytest.raises(IllegalStateError):
            Group("app", 0, first)
        return
    group, expected = Group("app", 0, first), (first, 0)
    for now_ms, state in enumerate(steps, start=1):
        if state in table[group.state]:
            group.move(state, now_ms)
            expected = state, now_ms
        else:
            with pytest.raises(IllegalStateError):
                group.move(state, now_ms)
        assert (group.state, group.state_timestamp_ms) == expected
    with pytest.raises(AttributeError):
        group.state = GroupState.STABLE  # type: ignore[misc]


MOVES = {
    TransactionState.ONGOING: lambda one: one.with_partitions([KEY], 1),
    TransactionState.PREPARE_COMMIT: lambda one: one.prepared(is_commit=True, now_ms=1),
    TransactionState.PREPARE_ABORT: lambda one: one.fenced(1),
    TransactionState.COMPLETE_COMMIT: lambda one: one.completed(1),
    TransactionState.EMPTY: lambda one: initialized(one, 1000, None, 1, lambda: 8),
}


@examples(100)
@given(steps=st.lists(st.sampled_from([*MOVES, TransactionState.COMPLETE_ABORT]), max_size=12))
def test_a_transaction_goes_by_its_table(steps: list[TransactionState]) -> None:
    table = transaction.TRANSITIONS
    one = Transaction("me", 7, 0, 1000)
    for wanted in steps:
        # The same call completes a commit and an abort: the decision is what says which.
        ended = TransactionState.COMPLETE_COMMIT if one.is_commit else TransactionState.COMPLETE_ABORT
        state = ended if wanted in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT) else wanted
        move = MOVES[TransactionState.COMPLETE_COMMIT if state is ended else state]
        if state in table[one.state]:
            one = move(one)  # type: ignore[no-untyped-call]
            assert one.state is state
        else:
            with pytest.raises(IllegalStateError):
                move(one)  # type: ignore[no-untyped-call]


@examples(100)
@given(steps=st.lists(st.sampled_from(["begin", "done", "pause", "resume", "abort"]), max_size=12))
def test_compaction_goes_by_its_table(steps: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A model that counts pauses; a call that the state does not allow changes nothing."""
    table = table_of("tidelog.storage.compaction.cleaner_manager")
    manager = CleanerManager(tmp_path_factory.getbasetemp(), {}, ManualClock(0))
    is_running, pauses = False, 0
    for step in steps:
        before = manager.state(KEY)
        allowed = {"begin": not is_running and not pauses, "done": is_running, "resume": pauses > 0}.get(step, True)
        calls = {
            "begin": lambda: manager._move(KEY, CleaningState.IN_PROGRESS),
            "done": lambda: manager.give_up_cleaning(KEY),
            "pause": lambda: manager.abort_and_pause_cleaning(KEY),
            "resume": lambda: manager.resume_cleaning([KEY]),
            "abort": lambda: manager.abort_cleaning(KEY),
        }
        if allowed:
            calls[step]()
            is_running = step == "begin" or (is_running and step not in ("done", "pause", "abort"))
            pauses += {"pause": 1, "resume": -1}.get(step, 0)
            assert manager.state(KEY) is before or manager.state(KEY) in table[before]
        else:
            with pytest.raises(InvalidArgumentError):
                calls[step]()
        expected = CleaningState.IN_PROGRESS if is_running else CleaningState.PAUSED if pauses else None
        assert manager.state(KEY) is expected


@examples(30)
@given(steps=st.lists(st.sampled_from(["make", "remove", "disk refuses", "load again", "fail"]), max_size=8))
def test_a_partition_goes_by_its_table(steps: list[str]) -> None:
    """Whatever is asked: the partition moves as the table says, or stays what it was."""
    table = table_of("tidelog.storage.partitions")
    with tempfile.TemporaryDirectory() as folder:
        directory, clock = Path(folder), ManualClock(0)
        scheduler = Scheduler(clock)
        partitions = Partitions(directory, clock, scheduler, DirCheckpoints(directory), had_clean_shutdown=True)
        place = PartitionFolder(KEY, partitions.directory_of(KEY), LogConfig(), None)
        wanted = {
            "make": PartitionState.SERVED,
            "load again": PartitionState.SERVED,
            "fail": PartitionState.OFFLINE,
            "remove": None,
        }
        for step in steps:
            before = partitions.state(KEY)
            if step == "disk refuses":
                if before is PartitionState.SERVED:
                    partitions.logs[KEY].go_offline("append", OSError("no"))
                    assert partitions.state(KEY) is PartitionState.READABLE
                continue
            if step == "make" and place.directory.exists():
                continue  # The folder itself is refused, before anything is asked.
            if step == "load again":
                if before is None or not place.directory.exists():
                    continue
                partitions.reload(place)
                assert partitions.state(KEY) is PartitionState.SERVED
                continue
            # A start removes folders that it does not load, too.
            allowed = wanted[step] in table[before] or step == "remove"
            calls = {
                "make": lambda: partitions.create(place),
                "fail": lambda: partitions.fail(KEY, "the test says so"),
                "remove": lambda: partitions.remove(KEY),
            }
            if allowed:
                calls[step]()
                assert partitions.state(KEY) is wanted[step]
            else:
                with pytest.raises(IllegalStateError):
                    calls[step]()
                assert partitions.state(KEY) is before
        partitions.close_handlers()
