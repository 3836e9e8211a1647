"""Young objects are looked at when they are said to be, and Python's own looks at all objects come no sooner for it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tidelog.broker.requests.wide_requests import WideRequests
from tidelog.cli.serving import process as serving
from tidelog.cli.serving.process import MANY_OBJECTS, YOUNG_LOOKS, Collector, freeze_new_objects

THRESHOLDS = (1_000_000, 5, 800)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The generations that this thread looks at: a broker of another test may still run in one of its own."""
    monkeypatch.setattr(serving, "GC_THRESHOLDS", THRESHOLDS)
    found: list[int] = []
    own = threading.get_ident()

    def noted(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == own:
            found.append(info["generation"])

    before = gc.get_threshold()
    gc.callbacks.append(noted)
    yield found
    gc.callbacks.remove(noted)
    gc.unfreeze()
    gc.set_threshold(*before)


def started(looks: list[int]) -> Collector:
    """Return a collector, and forget what Python looked at of itself before that was made."""
    collect = Collector()
    gc.collect()
    gc.freeze()  # Other tests' objects.
    looks.clear()
    return collect


def test_some_looks_at_the_youngest_then_one_at_what_is_left(looks: list[int]) -> None:
    collect = started(looks)
    for _ in range(2 * YOUNG_LOOKS + 2):
        collect()
    assert looks == [*[0] * YOUNG_LOOKS, 1] * 2
    assert gc.get_threshold() == (*THRESHOLDS[:2], THRESHOLDS[2] + 2)
    gc.collect()  # After a look at all objects Python counts from nothing again.
    for _ in range(YOUNG_LOOKS + 1):
        collect()
    assert gc.get_threshold() == (*THRESHOLDS[:2], THRESHOLDS[2] + 1)


def test_nothing_is_looked_at_while_a_wide_request_is_in_memory(looks: list[int]) -> None:
    collect = started(looks)
    gc.disable()
    try:
        collect()
    finally:
        gc.enable()
    assert looks == []


@pytest.mark.parametrize("count", [MANY_OBJECTS, 5 * MANY_OBJECTS])
def test_many_objects_that_stay_are_frozen(looks: list[int], count: int) -> None:
    """Many are collected once before; very many are not, because that would take long."""
    collect = started(looks)
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(count)]
    for _ in range(2 * YOUNG_LOOKS + 2):
        collect()
    assert gc.get_freeze_count() >= frozen + count
    assert (2 in looks) == (count < 2 * MANY_OBJECTS)
    looks.clear()
    for _ in range(2 * YOUNG_LOOKS + 2):
        collect()
    assert looks == [*[0] * YOUNG_LOOKS, 1] * 2
    del kept


def test_what_a_wide_request_leaves_is_frozen(looks: list[int]) -> None:
    started(looks)
    requests = WideRequests()
    requests.before_collecting = freeze_new_objects
    frozen = gc.get_freeze_count()
    requests.enter(lambda: None)
    requests.leave()
    assert gc.get_freeze_count() == frozen
    requests.enter(lambda: None)
    kept: list[list[int]] = [[] for _ in range(MANY_OBJECTS)]
    requests.leave()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)
