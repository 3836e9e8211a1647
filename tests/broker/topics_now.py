"""Changes of a broker's topics, done here and now: the broker's clients have them made in steps."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.node import Node
from tidelog.broker.topics.topics import Topics, TopicView
from tidelog.config import PropertyValue
from tidelog.storage.steps import run_steps


def _topics(node: Node) -> Topics:
    assert isinstance(node.topics, Topics)
    return node.topics


def create(node: Node, name: str, partitions: int, properties: Mapping[str, PropertyValue]) -> TopicView:
    """Create a topic."""
    return run_steps(_topics(node).creation(name, partitions, properties), node.manager.metadata)


def configure(node: Node, name: str, properties: Mapping[str, PropertyValue]) -> None:
    """Give a topic these properties instead of those it had."""
    run_steps(_topics(node).configuration(name, properties), node.manager.metadata)


def delete(node: Node, name: str) -> None:
    """Delete a topic."""
    view = node.topics.get(name)
    assert view is not None
    run_steps(_topics(node).deletion(view), node.manager.metadata)
