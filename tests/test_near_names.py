"""Which name was probably meant."""

from __future__ import annotations

import pytest

from tidelog.near_names import did_you_mean, near_topics

TOPICS = ["__consumer_offsets", "arrivals", "departures", "departures.dlq", "Orders_EU", "payments"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("departure", " (did you mean departures or departures.dlq?)"),
        ("departuers", " (did you mean departures or departures.dlq?)"),
        ("orders-eu", " (did you mean Orders_EU?)"),
        ("ORDERS.EU", " (did you mean Orders_EU?)"),
        ("weather", ""),
        ("", ""),
        ("consumer_offsets", ""),
        ("__consumer_offset", " (did you mean __consumer_offsets?)"),
    ],
)
def test_topics(name: str, said: str) -> None:
    assert near_topics(name, TOPICS) == said


def test_names_that_differ_in_separators_alone() -> None:
    assert did_you_mean("a_topic_x", ["a-topic-y", "a.topic-y"]) == " (did you mean a-topic-y?)"
    assert did_you_mean("a_topic_x", ["a-topic-y", "a.topic-y"], most=2) == " (did you mean a-topic-y or a.topic-y?)"


def test_no_name_is_known() -> None:
    assert did_you_mean("a", []) == ""
