"""The file of topics, and the folder's owner."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.storage.known_topics import write_old_file
from tidelog.errors import CorruptCheckpointError
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.folder.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from tidelog.storage.folder.topics_file import TOPICS_FILE, read_topics_file
from tidelog.storage.topics.topic import Topic

TOPIC_ID = uuid.UUID(int=0x1234)


def test_no_file_no_topics(tmp_path: Path) -> None:
    assert read_topics(tmp_path) == {}
    assert read_meta_properties(tmp_path) is None


def test_topics_as_they_were_kept(tmp_path: Path) -> None:
    topics = {"b": Topic("b", TOPIC_ID, 3, {"retention.ms": "5"}), "a": Topic("a", uuid.UUID(int=7), 1)}
    write_old_file(tmp_path, topics, deleting="a")
    found = read_topics_file(tmp_path)
    assert found == {"b": (topics["b"], False), "a": (topics["a"], True)}
    assert read_topics(tmp_path) == {"b": topics["b"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "found list"),
        ('{"version": 2}', "found 2, expected 1"),
        ('{"version": 1}', "no object named topics"),
        ('{"version": 1, "topics": {"a": 5}}', "topic 'a'.*found int"),
        ('{"version": 1, "topics": {"a": {"id": "x", "partitions": 1}}}', "the id is invalid: found 'x'"),
        ('{"version": 1, "topics": {"a": {"id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": 0}}}', "partitions is invalid: found 0"),
        ('{"version": 1, "topics": {"a": {"id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": 1, "properties": {"x": 1}}}}', "unknown"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / TOPICS_FILE).write_text(text)
    with pytest.raises(CorruptCheckpointError, match=words):
        read_topics_file(tmp_path)


def test_owner_of_kafkas_making(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 00:41:11 UTC 2026\nnode.id=1\ndirectory.id=hHa37Y8VmWSBv1MUzYPlVw\nversion=1\ncluster.id=abc\\=\\=\n"
    )
    owner = read_meta_properties(tmp_path)
    assert owner == MetaProperties(1, "abc==", "hHa37Y8VmWSBv1MUzYPlVw")
    write_meta_properties(tmp_path, owner)
    assert read_meta_properties(tmp_path) == owner


def test_owner_of_the_times_of_zookeeper(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\n")
    owner = read_meta_properties(tmp_path)
    assert owner == MetaProperties(3, None, None, 0)
    write_meta_properties(tmp_path, owner)
    assert read_meta_properties(tmp_path) == owner


@pytest.mark.parametrize("text", ["version=1\n", "version=7\nnode.id=1\n", "version=1\nnode.id=one\n"])
def test_owners_that_cannot_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_meta_properties(tmp_path)
