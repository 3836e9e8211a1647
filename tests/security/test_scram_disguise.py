"""Users that nobody knows look like known ones: at each listener and broker, after a restart, however those were made."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable

import pytest

from tidelog.security.scram import HASHES, ScramCredential, ScramServer, new_credential
from tidelog.security.scram_disguise import KnownUser, ScramDisguise
from tidelog.security.secret import Secret

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def by_kafkas_tool() -> ScramCredential:
    """As `kafka-configs --alter --entity-type users` makes them: a number of 130 bits to base 36."""
    number, text = secrets.randbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return new_credential("SCRAM-SHA-256", Secret("p"), 8192)._replace(salt=text.encode())


def by_librdkafka() -> ScramCredential:
    return new_credential("SCRAM-SHA-256", Secret("p"), 4096)._replace(salt=secrets.token_bytes(64))


def challenge(known: Iterable[KnownUser], name: str) -> tuple[str, str]:
    """Return the salt and the iterations that a name is answered with, by a broker that has just started."""
    users = {one.name: one.credential for one in known}
    disguise = ScramDisguise(lambda: known)
    server = ScramServer("SCRAM-SHA-256", users.get, lambda user: disguise.credential("SCRAM-SHA-256", user))
    match = re.fullmatch(r"r=[^,]+,s=([^,]+),i=(\d+)", server.evaluate(f"n,,n={name},r=C".encode()).decode())
    assert match is not None
    return match[1], match[2]


@pytest.mark.parametrize("make", [by_kafkas_tool, by_librdkafka])
def test_nothing_tells_them_apart(make: Callable[[], ScramCredential]) -> None:
    known = [KnownUser(f"user-{number}", "SCRAM-SHA-256", make()) for number in range(20)]
    seen = {challenge(known, one.name) for one in known}
    made = [challenge(known, f"nobody-{number}") for number in range(20)]
    assert {one[1] for one in made} == {one[1] for one in seen}
    assert {len(one[0]) for one in made} <= {len(one[0]) for one in seen} | {32, 36}
    assert len({one[0] for one in made}) == 20
    # Each time, also where users are kept in another order, or others are added.
    assert made == [challenge(known[::-1], f"nobody-{number}") for number in range(20)]
    known.append(KnownUser("zoe", "SCRAM-SHA-256", make()))
    assert made == [challenge(known, f"nobody-{number}") for number in range(20)]


def test_users_of_both_kinds() -> None:
    known = [KnownUser("a", "SCRAM-SHA-256", by_kafkas_tool()), KnownUser("b", "SCRAM-SHA-256", by_librdkafka())]
    made = {challenge(known, f"nobody-{number}")[1] for number in range(40)}
    assert made == {"8192", "4096"}


@pytest.mark.parametrize("mechanism", HASHES)
def test_nobody_can_be_such_a_user(mechanism: str) -> None:
    """The keys are random ones, and as long as those of others; also where nobody is known."""
    made = ScramDisguise(tuple).credential(mechanism, "x")
    again = ScramDisguise(tuple).credential(mechanism, "x")
    real = new_credential(mechanism, Secret("p"))
    assert len(made.stored_key) == len(real.stored_key) and len(made.server_key) == len(real.server_key)
    assert made.stored_key != again.stored_key and made.salt != again.salt
