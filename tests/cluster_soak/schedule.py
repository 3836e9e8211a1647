"""Which faults come one after another: drawn from a seed, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often it is drawn beside others, and how long it lasts, in seconds."""

    weight: int
    lasts_s: tuple[float, ...]
    hits: str = "broker"


KINDS = {
    "kill": Kind(24, (0.0, 1.0, 4.0)),
    "kill-two": Kind(5, (0.0, 2.0)),
    "pause": Kind(12, (20.0, 20.0, 5.0)),
    "cut-off": Kind(16, (2.0, 6.0, 10.0)),
    "full-disk": Kind(10, (4.0, 8.0)),
    "restart": Kind(12, (0.0, 1.0)),
    "roll": Kind(4, (0.0,), "all"),
    "controller-kill": Kind(14, (0.0, 4.0), "controller"),
    "controller-pause": Kind(8, (4.0, 10.0), "controller"),
    "controller-restart": Kind(4, (0.0,), "controller"),
}
SHORT = ("kill", "pause", "cut-off", "full-disk", "restart", "controller-kill")
SHORT_S = 5.0
"""Of a short run: longer than the session of a broker."""


@dataclass(frozen=True)
class Fault:
    """One fault. `target` is the id of a node; of "kill-two" the next broker's, too; 0: every broker in turn."""

    number: int
    kind: str
    target: int
    lasts_s: float

    @property
    def is_controllers(self) -> bool:
        return KINDS[self.kind].hits == "controller"

    def __str__(self) -> str:
        place = "every broker" if self.target == 0 else f"{'controller' if self.is_controllers else 'broker'} {self.target}"
        return f"{self.kind:<18} {place:<15} {self.lasts_s:>4.1f} s"


def draw(
    seed: int, count: int, brokers: Sequence[int], controllers: Sequence[int], kinds: Sequence[str] = tuple(KINDS)
) -> list[Fault]:
    """Return `count` faults of these kinds."""
    chance = Random(seed)
    faults = []
    for number in range(1, count + 1):
        name = chance.choices(kinds, [KINDS[kind].weight for kind in kinds])[0]
        targets = {"broker": brokers, "controller": controllers, "all": [0]}[KINDS[name].hits]
        faults.append(Fault(number, name, chance.choice(targets), chance.choice(KINDS[name].lasts_s)))
    return faults


def groups(faults: Iterable[Fault]) -> Iterator[list[Fault]]:
    """Return the faults one by one, but a broker's and a controller's that follow one another together: both fail at once."""
    waiting: list[Fault] = []
    for fault in faults:
        if waiting and (fault.target == 0 or waiting[0].target == 0 or waiting[0].is_controllers == fault.is_controllers):
            yield waiting
            waiting = []
        waiting.append(fault)
        if len(waiting) == 2:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def short(seed: int, brokers: Sequence[int], controllers: Sequence[int]) -> list[Fault]:
    """Return one fault of each of the kinds in `SHORT`, in any order."""
    chance = Random(seed)
    kinds = chance.sample(SHORT, len(SHORT))
    targets = {"broker": brokers, "controller": controllers}
    return [
        Fault(number, name, chance.choice(targets[KINDS[name].hits]), min(SHORT_S, max(KINDS[name].lasts_s)))
        for number, name in enumerate(kinds, 1)
    ]
