"""`tidelog format [DIR] --cluster-id ID`: formats a data folder for a cluster member, like `kafka-storage format`."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.broker.settings.server_properties import sort_properties
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line
from tidelog.cli.printing.output import print_lines
from tidelog.config import INT32_MAX
from tidelog.properties_file import read_properties_file
from tidelog.storage.folder.folder_format import format_folder


@click.command("format")
@click.argument("directory", metavar="[DIR]", type=LocalPath(), required=False)
@click.option("--cluster-id", required=True, metavar="ID", help="The cluster id that the controllers were formatted with.")
@click.option("--node-id", type=click.IntRange(0, INT32_MAX), metavar="N", help="The broker's id. [default: node.id of --config]")
@click.option("--config", "config_file", metavar="FILE", type=LocalPath(), help="The broker's server.properties.")
@click.option("--ignore-formatted", is_flag=True, help="Ignore a folder that is already formatted for the same node and cluster.")
@json_option
def command(
    directory: str | None, cluster_id: str, node_id: int | None, config_file: str | None, ignore_formatted: bool, as_json: bool
) -> None:
    """Format a data folder for a broker of a cluster, before its first start.

    The folder then belongs to that broker: any other node, or a node of a different cluster, refuses to start on the folder. A
    folder formatted by kafka-storage needs no formatting.
    """
    if config_file is not None:
        wanted = sort_properties(read_properties_file(config_file))
        directory = directory or (None if wanted.config.log_dir is None else str(wanted.config.log_dir))
        configured = wanted.manager.get("node.id")
        node_id = int(configured) if node_id is None and configured is not None else node_id
    if directory is None:
        raise click.UsageError("there is no data folder: give DIR, or a --config with log.dirs.")
    if node_id is None:
        raise click.UsageError("there is no node id: give --node-id, or a --config with node.id.")
    done = format_folder(Path(directory), cluster_id, node_id, ignore_formatted=ignore_formatted)
    owner = done.owner
    state = "formatted" if done.is_new else "was already formatted"
    text = f"{directory} {state}: node {owner.node_id} of cluster {owner.cluster_id}, directory {owner.directory_id or '-'}"
    facts = {"path": directory, "is_new": done.is_new, "node_id": owner.node_id, "cluster_id": owner.cluster_id}
    print_lines([json_line({**facts, "directory_id": owner.directory_id}) if as_json else one_line(text)])
    if done.is_new and done.partitions:
        count = f"{done.partitions} partition{'s are' if done.partitions > 1 else ' is'}"
        notices.note(f"{count} in {directory}: a broker sets aside partitions that are missing from the cluster's metadata")
