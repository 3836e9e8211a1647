"""Files and folders of this machine: the type of options that name one, and the folder of what commands remember."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tidelog.folder_path import folder_path


class LocalPath(click.Path):
    """A path, or a `file:` URL of a path. Addresses with another scheme are refused, so that no folder named `s3:` is created."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(folder_path(value, "a path, or file:///path")), param, ctx)


def state_folder() -> Path:
    """Return the folder of what commands remember from run to run: `$XDG_STATE_HOME/tidelog`, or that of ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tidelog"
