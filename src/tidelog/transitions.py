"""State machines as tables: from each state, to which others, and what does that.

| reads a table | and |
|---|---|
| the code that moves | refuses what is not in it (`checked`): that is a bug, and is not done |
| tests | drive what owns the machine, and look at every move |
| docs | show it: docs/states.md has a row a move |

A machine's module has its table as `TRANSITIONS`; `None` stands for "not there yet" or "not there any more". A move that is not
in the table for want of a line is refused, too: so the tables are whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

from tidelog.errors import IllegalStateError

S = TypeVar("S", bound=Hashable)

Transitions: TypeAlias = Mapping[S, Mapping[S, str]]
"""From a state to the others, with what does it."""


def checked(transitions: Transitions[S], before: S, after: S, what: str) -> S:
    """Return `after`; `what` is what moves. Raises IllegalStateError if the table has no such move."""
    if after not in transitions.get(before, ()):
        allowed = ", ".join(map(name_of, transitions.get(before, ()))) or "nothing"
        raise IllegalStateError(f"{what} cannot go from {name_of(before)}", found=name_of(after), expected=allowed)
    return after


def name_of(state: Hashable) -> str:
    """Return a state's name as Kafka writes it, where it is one of Kafka's."""
    if state is None:
        return "-"
    text = getattr(state, "text", None) or (state.value if isinstance(state, Enum) else state)
    return str(text)
