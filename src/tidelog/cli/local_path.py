"""The type of options that name a file or folder of this machine."""

from __future__ import annotations

from typing import Any

import click

from tidelog.folder_path import folder_path


class LocalPath(click.Path):
    """A path, or a `file:` URL of a path. Addresses with another scheme are refused, so that no folder named `s3:` is created."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(folder_path(value, "a path, or file:///path")), param, ctx)
