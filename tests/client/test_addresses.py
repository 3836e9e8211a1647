"""host:port, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.connections.addresses import BrokerAddress, is_address, parse_addresses
from tidelog.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("10.0.0.1:9092, b-2.example.org:19092", [("10.0.0.1", 9092), ("b-2.example.org", 19092)]),
        ("a:1,a:1,b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("PLAINTEXT://kafka_1:9092", [("kafka_1", 9092)]),
    ],
)
def test_addresses(text: str, found: list[tuple[str, int]]) -> None:
    assert is_address(text)
    assert list(parse_addresses(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "data",
        "/data:9092",
        "./kafka:9092",
        "a:9092,",
        "a:9092,b",
        "a:port",
        "a:123456",
        ":9092",
        "-a:1",
        "C:\\data",
        "a:1/b",
    ],
)
def test_what_is_no_address_is_a_folder(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(InvalidArgumentError, match="not a broker's address"):
        parse_addresses(text)


def test_only_texts_are_addresses() -> None:
    assert not is_address(Path("a:9092"))
    assert not is_address(None)


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:99999"])
def test_ports_that_are_none(text: str) -> None:
    assert is_address(text)
    with pytest.raises(InvalidArgumentError, match="the port is out of range"):
        parse_addresses(text)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "sasl_ssl"])
def test_other_protocols_are_refused(protocol: str) -> None:
    with pytest.raises(InvalidArgumentError, match="different security protocols"):
        parse_addresses(f"{protocol}://a:9092")


@given(st.sampled_from(["h", "a.b-c_d", "1.2.3.4", "::1", "fe80::2"]), st.integers(1, 65_535))
def test_what_is_shown_is_an_address_again(host: str, port: int) -> None:
    assert parse_addresses(str(BrokerAddress(host, port))) == (BrokerAddress(host, port),)
