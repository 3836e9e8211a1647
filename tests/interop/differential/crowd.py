"""Many clients of both brokers at once: each step is taken on both sides, and both have to answer the same clients the same.

A join or a sync may wait for other members. So a step is over when both sides have answered the same clients and nothing more
comes for a moment, in which both do answer somebody else: else a machine that stands still looks like members that wait. An
answer that comes on one side only is waited for on the other, for a minute, and is then a difference.

A member's id is made up by each broker: the one that a client was given is `crowd.member_id(side, who)`, and stands masked in
answers as its prefix and who has it.
"""

from __future__ import annotations

import re
import select
import time
from typing import Any

from tests.broker.raw import RawClient
from tests.interop.differential.deliberate import may_be_silent
from tests.interop.differential.pair import MadeFor, Pair, Side
from tests.patience import PATIENCE_S
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest

QUIET_S = 0.04
ROUNDS = 3
"""So many requests of somebody else are answered before who is not counts as one that waits."""
SILENCE_S = 4
"""How long Kafka has to answer what it never answers. Tidelog does answer it, however late."""
_MADE_UP = re.compile(r"(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)
_HAS_ITS_ID = {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}


class Crowd:
    """Clients by their names, each with a connection to each side and at most one request under way."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._clients: dict[tuple[Side, str], RawClient] = {}
        self._bystanders: dict[Side, RawClient] = {}
        self._waiting: dict[str, str] = {}
        """Who has a request under way, and what it is called."""
        self.compares_leaders = True
        """Whether it has to be the same member that leads, on both sides."""
        self._ids: dict[tuple[Side, str], str] = {}
        self._names: dict[tuple[Side, str], str] = {}

    def member_id(self, side: Side, who: str) -> str:
        """The id that a client was given last, "" if it has none."""
        return self._ids.get((side, who), "")

    def is_waiting(self, who: str) -> bool:
        return who in self._waiting

    def forget(self, who: str) -> None:
        """A client that comes back knows its id no more."""
        for side in self.pair.sides:
            self._ids.pop((side, who), None)

    def hang_up(self, who: str) -> None:
        """Close a client's connections; what it asked is answered to nobody."""
        self._waiting.pop(who, None)
        for side in self.pair.sides:
            client = self._clients.pop((side, who), None)
            if client is not None:
                client.close()

    def close(self) -> None:
        for client in (*self._clients.values(), *self._bystanders.values()):
            client.close()
        self._clients.clear()
        self._bystanders.clear()

    def step(self, label: str, who: str, message: MadeFor, version: int) -> dict[str, Any]:
        """Have a client ask; return Kafka's masked answers by who was answered, which need not be who asked."""
        assert who not in self._waiting, f"{who} waits"
        for side in self.pair.sides:
            made = message(side) if callable(message) else message
            self._client(side, who).send(made, version)
        self._waiting[who] = f"{who}: {label} v{version}"
        self.pair.asked += 1
        return self.settle(until=None if isinstance(made, JoinGroupRequest | SyncGroupRequest) else who)

    def settle(self, *, until: str | None = None) -> dict[str, Any]:
        """Wait until both sides have answered the same clients; with `until`, that one among them. Compare their answers."""
        answers: dict[Side, dict[str, Any]] = {side: {} for side in self.pair.sides}
        silent = {who for who, label in self._waiting.items() if may_be_silent(label)}
        began = time.monotonic()
        deadline = began + PATIENCE_S
        rounds = 0
        while time.monotonic() < deadline:
            waits = self._waiting.keys() - (answers[self.pair.kafka].keys() & answers[self.pair.tidelog].keys())
            came = self._receive(answers, QUIET_S if waits and not rounds else 0)
            agreed = not answers[self.pair.kafka].keys() ^ answers[self.pair.tidelog].keys()
            if silent and time.monotonic() > began + SILENCE_S:
                agreed = answers[self.pair.tidelog].keys() == answers[self.pair.kafka].keys() | silent
            if came or not agreed or (until is not None and until not in answers[self.pair.kafka]):
                rounds = 0
            elif not waits or rounds == ROUNDS:
                break
            else:
                rounds += 1
                self._ask_bystanders()
        if until is not None and not any(until in of_side for of_side in answers.values()):
            raise TimeoutError(f"neither side has answered {self._waiting.get(until, until)}")
        kafka, tidelog = (self._named_and_masked(side, answers[side]) for side in self.pair.sides)
        for who in sorted(kafka.keys() | tidelog.keys()):
            label = self._waiting.pop(who)
            self.pair.compare(label, kafka.get(who, "waits"), tidelog.get(who, "waits"))
            if who not in kafka or who not in tidelog:
                self.hang_up(who)
        return kafka

    def _named_and_masked(self, side: Side, answers: dict[str, Any]) -> dict[str, Any]:
        """Return answers masked. A leader's may come before those that tell its members who they are."""
        for who, answer in sorted(answers.items()):
            if isinstance(answer, JoinGroupResponse) and answer.error_code in _HAS_ITS_ID and answer.member_id:
                self._ids[side, who] = answer.member_id
                self._name(side, answer.member_id, who)
        return {who: self.masked(side, answer) for who, answer in answers.items()}

    def _client(self, side: Side, who: str) -> RawClient:
        client = self._clients.get((side, who))
        if client is None:
            client = self._clients[side, who] = RawClient(side.address, client_id=f"client-{who}")
        return client

    def _ask_bystanders(self) -> None:
        """Have both brokers answer somebody who waits for nothing."""
        for side in self.pair.sides:
            if side not in self._bystanders:
                self._bystanders[side] = RawClient(side.address, client_id="bystander", timeout_s=PATIENCE_S)
            self._bystanders[side].ask(ApiVersionsRequest("tests", "1.0"), 3)

    def _receive(self, answers: dict[Side, dict[str, Any]], wait_s: float) -> bool:
        """Take what has come. Return whether anything had."""
        open_now = {
            self._clients[side, who].socket: (side, who)
            for side in self.pair.sides
            for who in self._waiting.keys() - answers[side].keys()
        }
        ready = select.select(list(open_now), [], [], wait_s)[0] if open_now else []
        for side, who in (open_now[one] for one in ready):
            try:
                answers[side][who] = self._clients[side, who].receive()
            except ConnectionError:
                answers[side][who] = "closed"
                self._clients.pop((side, who)).close()
        return bool(ready)

    def _name(self, side: Side, member_id: str, who: str) -> None:
        """Give a member's id a name, which says who had it and how many it has had before."""
        if (side, member_id) in self._names or not _MADE_UP.fullmatch(member_id):
            return
        count = sum(1 for (of, _), name in self._names.items() if of is side and name.startswith(f"{who}#"))
        self._names[side, member_id] = f"{who}#{count + 1}"

    def masked(self, side: Side, answer: Any) -> Any:
        """Return an answer as `Side.masked` does, with members' ids by their names, and members in order."""
        masked = self._masked(side, side.masked(answer))
        if not self.compares_leaders and isinstance(answer, JoinGroupResponse):
            masked |= {"leader": "one of them", "members": "told to the leader"}
        return masked

    def _masked(self, side: Side, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._masked(side, one) for key, one in value.items()}
        if isinstance(value, list):
            masked = [self._masked(side, one) for one in value]
            is_hashed = masked and isinstance(masked[0], dict) and masked[0].keys() & {"metadata", "member_metadata"}
            return sorted(masked, key=repr) if is_hashed else masked
        if isinstance(value, str):
            made_up = _MADE_UP.fullmatch(value)
            if made_up:
                return f"{made_up[1]} {self._names.get((side, value), 'of nobody')}"
        return value
