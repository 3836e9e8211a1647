"""Keeps the addresses of the controllers and their leader, as learned from responses. Does no I/O.

The leader with the highest election epoch wins; a lower epoch is ignored.

| a controller's address | |
|---|---|
| in ``controller.quorum.voters`` | overrides responses, because controllers may know one another by other addresses |
| in the metadata's VotersRecord (KIP-853) | overrides ``controller.quorum.voters`` |
| in a response | is used if the other two do not name the controller, e.g. if only bootstrap servers are configured |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

NO_LEADER = -1


class Address(NamedTuple):
    """A controller's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Quorum:
    """The known state of the controllers. Use only on the event loop's thread."""

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
        """The leader's address; None while the leader or its address is unknown."""
        return self._addresses.get(self.leader_id)

    def learn(
        self,
        leader_id: int,
        epoch: int,
        addresses: Mapping[int, tuple[str, int]] | None = None,
        *,
        is_by_leader: bool = False,
    ) -> bool:
        """Store the leader, epoch and addresses of a response. Return whether any of them was new.

        A leader that was given up is accepted again only from its own response (`is_by_leader`), because others may not have
        noticed its failure yet. The address that was asked does not matter: a controller may have several.
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
        before = self.leader
        self._voters = {node_id: Address(*address) for node_id, address in addresses.items()}
        self._addresses |= self._voters
        if self.leader != before:
            self._note_change()

    def give_up_leader(self) -> None:
        """Abandon the leader of this epoch because it does not answer. All controllers are then asked for the leader."""
        self._given_up = self.leader_id, self.epoch
        self.leader_id = NO_LEADER
        self._note_change()

    def candidates(self) -> list[Address]:
        """Return all controllers in the order to ask for the leader; each call starts with the next one."""
        known = list(dict.fromkeys([*self._addresses.values(), *self._bootstrap]))
        self._turn = (self._turn + 1) % len(known)
        return known[self._turn :] + known[: self._turn]

    async def wait_for_leader(self, other_than: Address | None = None) -> Address:
        """Wait for a leader other than the given one, and return its address."""
        while (leader := self.leader) is None or leader == other_than:
            await self._changed.wait()
        return leader

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def __str__(self) -> str:
        known = dict.fromkeys([*self._addresses.values(), *self._bootstrap])
        return ", ".join(map(str, known))
