"""Work in steps: a generator yields what may wait for a disk, and continues with the result.

| yielded | meaning |
|---|---|
| a `Change` of the metadata | wait until it is on disk; None is sent back, or the error raised |
| a function | call it, on another thread if there is one; its result is sent back, or its error raised |
| None | other work may run here |

Equal functions (such as the same method of the same object) that wait at the same time may be called once for all. The generator
itself runs on the owner's thread. A library calls `run_steps`, and waits; a broker runs many at once
(`broker.topics.topic_changes`). Closing the generator early leaves the same state as a crash at that step, with no file open.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from tidelog.storage.metadata.metadata_store import Change, MetadataStore

T = TypeVar("T")

Step: TypeAlias = Change | Callable[[], Any] | None
Steps: TypeAlias = Generator[Step, Any, T]


def run_steps(steps: Steps[T], store: MetadataStore | None = None) -> T:
    """Run all steps now; return their result. Raises what they raise. `store` is the metadata log of the changes."""
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
