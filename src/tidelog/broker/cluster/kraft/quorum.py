"""The controllers, and which of them leads: what answers of theirs have shown. Knows no sockets.

A leader is believed by the epoch of its election: a higher one wins, a lower one is old news. Addresses are from
``controller.quorum.voters``, or come with answers where only bootstrap servers are given (KIP-853).
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
    """What is known of the controllers. Belongs to the loop's thread."""

    def __init__(self, voters: Mapping[int, tuple[str, int]], bootstrap_servers: Iterable[tuple[str, int]] = ()) -> None:
        self.leader_id = NO_LEADER
        self.epoch = 0
        self._addresses = {node_id: Address(*address) for node_id, address in voters.items()}
        self._bootstrap = [Address(*address) for address in bootstrap_servers]
        self._turn = 0
        self._has_leader = asyncio.Event()

    @property
    def leader(self) -> Address | None:
        """Where the leader listens; None while it, or its address, is unknown."""
        return self._addresses.get(self.leader_id)

    def learn(self, leader_id: int, epoch: int, addresses: Mapping[int, tuple[str, int]] | None = None) -> bool:
        """Take what an answer says; whether that is news."""
        before = self.leader_id, self.epoch, self.leader
        for node_id, address in (addresses or {}).items():
            self._addresses[node_id] = Address(*address)
        if epoch > self.epoch or (epoch == self.epoch and self.leader_id == NO_LEADER):
            self.epoch, self.leader_id = epoch, leader_id
        if self.leader is None:
            self._has_leader.clear()
        else:
            self._has_leader.set()
        return before != (self.leader_id, self.epoch, self.leader)

    def give_up_leader(self) -> None:
        """Forget who leads in this epoch: it does not answer. All are asked who leads now."""
        self.leader_id = NO_LEADER
        self._has_leader.clear()

    def next_candidate(self) -> Address:
        """Return a controller to be asked who leads, each in its turn."""
        known = list(dict.fromkeys([*self._addresses.values(), *self._bootstrap]))
        self._turn += 1
        return known[self._turn % len(known)]

    async def wait_for_leader(self) -> Address:
        """Return where the leader listens, once that is known."""
        while (leader := self.leader) is None:
            await self._has_leader.wait()
        return leader

    def __str__(self) -> str:
        known = dict.fromkeys([*self._addresses.values(), *self._bootstrap])
        return ", ".join(map(str, known))
