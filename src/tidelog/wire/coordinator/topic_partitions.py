"""Partitions of topics that are named by their ids, in the records of the newer groups."""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Struct, array, int32, uuid16


class TopicIdPartitions(Struct):
    topic_id: uuid.UUID = uuid16()
    partitions: list[int] = array(int32)
