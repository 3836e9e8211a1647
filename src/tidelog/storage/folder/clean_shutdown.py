"""``.kafka_cleanshutdown``: the clean-shutdown file of a data folder, present if all logs were closed cleanly (spec §6.1, §6.4).

The file exists only while no broker runs: a start removes it first. Only its presence counts. Since Kafka 3.7 it contains JSON,
``{"version":0,"brokerEpoch":6}``; before that it was empty.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file, sync_directory

NO_BROKER_EPOCH = -1


def write_clean_shutdown(directory: Path, broker_epoch: int = NO_BROKER_EPOCH) -> None:
    """Write the clean-shutdown file. Raises StorageError."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(directory / names.CLEAN_SHUTDOWN_FILE, text.encode())


def read_broker_epoch(directory: Path) -> int:
    """Return the broker epoch at the last clean shutdown, `NO_BROKER_EPOCH` if it is not stored. Raises StorageError."""
    path = directory / names.CLEAN_SHUTDOWN_FILE
    try:
        epoch = json.loads(path.read_bytes())["brokerEpoch"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
    except OSError as error:
        raise StorageError(f"cannot read the clean-shutdown file: {error.strerror}", path=path) from error
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def take_clean_shutdown(directory: Path) -> bool:
    """Remove the clean-shutdown file, and return whether it existed. The removal is on disk when this returns. Raises
    StorageError.
    """
    path = directory / names.CLEAN_SHUTDOWN_FILE
    try:
        path.unlink()
        sync_directory(directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot remove the clean-shutdown file: {error.strerror}", path=path) from error
    return True
