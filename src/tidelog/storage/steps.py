"""Work in steps: a generator that hands out what may wait for a disk, and continues with what came of it.

| yielded | is |
|---|---|
| a `Change` of the metadata | waited for until it is on the disk; sent back is None, or the error raised |
| a function | called, on another thread if there is one; sent back is what it returns, or the error raised |
| None | a place where others may have their turn |

Functions that are equal, as a method of one object is to itself, and that wait at the same time, may be called once for all.

The generator itself runs on the owner's thread. A library calls `run_steps`, and waits; a broker runs many at once
(`broker.topic_changes`). Steps that are given up (`close`) leave what a crash at that place leaves, with nothing open.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from tidelog.storage.metadata.metadata_store import Change, MetadataStore

T = TypeVar("T")

Step: TypeAlias = Change | Callable[[], Any] | None
Steps: TypeAlias = Generator[Step, Any, T]


def run_steps(steps: Steps[T], store: MetadataStore | None = None) -> T:
    """Do all steps here and now; return what they come to. Raises what they raise. Changes are of the metadata log `store`."""
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            step = steps.send(result) if error is None else steps.throw(error)
            result, error = None, None
            try:
                if isinstance(step, Change):
                    assert store is not None
                    store.settle(step)
                elif step is not None:
                    result = step()
            except Exception as raised:
                error = raised
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
