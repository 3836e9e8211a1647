"""State machines as tables: the transitions from each state, and the cause of each.

| user of the table | use |
|---|---|
| the code that changes a state | refuses a transition that is not in the table (`checked`), because that is a bug |
| tests | run the code that owns the machine, and check every transition |
| docs | docs/states.md has a row for each transition |

A machine's module holds its table as `TRANSITIONS`; `None` stands for "not yet created" or "removed". Tables must be complete: a
transition that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

from tidelog.errors import IllegalStateError

S = TypeVar("S", bound=Hashable)

Transitions: TypeAlias = Mapping[S, Mapping[S, str]]
"""For each state, the states that may follow, with the cause of each transition."""


def checked(transitions: Transitions[S], before: S, after: S, what: str) -> S:
    """Return `after` if the table allows the transition from `before` to `after`. Otherwise raise IllegalStateError. `what` names
    the thing whose state changes.
    """
    if after not in transitions.get(before, ()):
        allowed = ", ".join(map(name_of, transitions.get(before, ()))) or "nothing"
        raise IllegalStateError(f"{what} cannot go from {name_of(before)}", found=name_of(after), expected=allowed)
    return after


def name_of(state: Hashable) -> str:
    """Return a state's name, as Kafka writes it if it is one of Kafka's."""
    if state is None:
        return "-"
    text = getattr(state, "text", None) or (state.value if isinstance(state, Enum) else state)
    return str(text)
