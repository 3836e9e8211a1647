"""The controllers, and which of them leads: what answers of theirs have shown. Knows no sockets.

A leader is believed by the epoch of its election: a higher one wins, a lower one is old news.

| a controller's address | |
|---|---|
| in ``controller.quorum.voters`` | stays, whatever answers say: controllers may name one another by other addresses |
| in the voters' record of the metadata (KIP-853) | takes that one's place |
| in an answer | counts where neither names the controller, as with bootstrap servers only |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

NO_LEADER = -1


class Address(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Quorum:
    """The known state of the controllers. Belongs to the loop's thread."""

    def __init__(self, voters: Mapping[int, tuple[str, int]], bootstrap_servers: Iterable[tuple[str, int]] = ()) -> None:
        self.leader_id = NO_LEADER
        self.epoch = 0
        self._voters = {node_id: Address(*address) for node_id, address in voters.items()}
        self._addresses = dict(self._voters)
        self._bootstrap = [Address(*address) for address in bootstrap_servers]
        self._turn = 0
        self._given_up = NO_LEADER, NO_LEADER
        self._changed = asyncio.Event()

    @property
    def leader(self) -> Address | None:
        """Where the leader listens; None while it, or its address, is unknown."""
        return self._addresses.get(self.leader_id)

    def learn(
        self,
        leader_id: int,
        epoch: int,
        addresses: Mapping[int, tuple[str, int]] | None = None,
        *,
        is_by_leader: bool = False,
    ) -> bool:
        """Take what an answer says; whether that is news.

        A leader that was given up is believed again when it says so itself: others may not have noticed yet. By which address
        it was asked does not matter: it may have several.
        """
        before = self.leader_id, self.epoch, self.leader
        for node_id, address in (addresses or {}).items():
            self._addresses[node_id] = self._voters.get(node_id) or Address(*address)
        if epoch > self.epoch or (epoch == self.epoch and self.leader_id == NO_LEADER):
            is_given_up = (leader_id, epoch) == self._given_up and not is_by_leader
            self.epoch, self.leader_id = epoch, NO_LEADER if is_given_up else leader_id
        if before == (self.leader_id, self.epoch, self.leader):
            return False
        self._note_change()
        return True

    def learn_voters(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Take what the metadata says of the voters."""
        before = self.leader
        self._voters = {node_id: Address(*address) for node_id, address in addresses.items()}
        self._addresses |= self._voters
        if self.leader != before:
            self._note_change()

    def give_up_leader(self) -> None:
        """Forget who leads in this epoch: it does not answer. All are asked who leads now."""
        self._given_up = self.leader_id, self.epoch
        self.leader_id = NO_LEADER
        self._note_change()

    def candidates(self) -> list[Address]:
        """Return all controllers, to be asked who leads: each call begins with the next one."""
        known = list(dict.fromkeys([*self._addresses.values(), *self._bootstrap]))
        self._turn = (self._turn + 1) % len(known)
        return known[self._turn :] + known[: self._turn]

    async def wait_for_leader(self, other_than: Address | None = None) -> Address:
        """Return where the leader listens, once one is known, and it is another one than that."""
        while (leader := self.leader) is None or leader == other_than:
            await self._changed.wait()
        return leader

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def __str__(self) -> str:
        known = dict.fromkeys([*self._addresses.values(), *self._bootstrap])
        return ", ".join(map(str, known))
