"""``quorum-state`` beside a metadata log: the newest epoch that the node knows, and the voters (KIP-595, KIP-853).

The file is JSON. With `data_version` 0 it names the voters; with 1 (for quorums whose voters may change) it does not. Kafka uses
the larger of this epoch and the log's epoch; it also starts without the file.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptCheckpointError
from tidelog.formats.checkpoints import replace_file
from tidelog.formats.json_files import read_object
from tidelog.reader.metadata_log import QUORUM_STATE

NO_VOTE = -1
_NO_ID = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")


class QuorumState(NamedTuple):
    """The file's content. `voters` is None if the file does not name the voters."""

    leader_epoch: int
    voters: tuple[int, ...] | None


def read_quorum_state(directory: Path) -> QuorumState | None:
    """Return the content of the file in a metadata log's folder, or None if there is no file. Raises CorruptCheckpointError,
    StorageError.
    """
    path = directory / QUORUM_STATE
    content = read_object(path, "the quorum's state")
    if content is None:
        return None
    epoch = content.get("leaderEpoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < -1:
        raise CorruptCheckpointError(
            "quorum-state has an invalid leaderEpoch", path=path, found=repr(epoch), expected="-1 or more"
        )
    voters = content.get("currentVoters")
    if voters is None:
        return QuorumState(epoch, None)
    try:
        return QuorumState(epoch, tuple(sorted(int(voter["voterId"]) for voter in voters)))
    except (TypeError, KeyError, ValueError):
        raise CorruptCheckpointError("quorum-state has invalid currentVoters", path=path, found=repr(voters)[:60]) from None


def write_quorum_state(directory: Path, node_id: int, epoch: int, *, kraft_version: int) -> None:
    """Replace the file: `node_id` leads in `epoch`, and is the only voter. Raises StorageError."""
    if kraft_version > 0:
        content = {
            "leaderId": node_id,
            "leaderEpoch": epoch,
            "votedId": NO_VOTE,
            "votedDirectoryId": _NO_ID,
            "data_version": 1,
        }
    else:
        content = {
            "clusterId": "",
            "leaderId": node_id,
            "leaderEpoch": epoch,
            "votedId": NO_VOTE,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": node_id}],
            "data_version": 0,
        }
    replace_file(directory / QUORUM_STATE, json.dumps(content, separators=(",", ":")).encode())
