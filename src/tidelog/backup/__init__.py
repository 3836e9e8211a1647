"""The format of a backup, and how a backup is read. Backups consist of Kafka's own segment files (see `docs/backup.md`).

| module | owns |
|---|---|
| `layout` | the names of all objects |
| `manifest`, `shapes` | the manifests, and how their JSON is checked |
| `target` | the folder or bucket that stores the objects |
| `backup` | points, with their topics, partitions, segments and files |
| `joined_file`, `backup_path` | several objects as one file; a point as a data folder |
| `opening` | opens the address of any folder or backup |
| `verify`, `signed_report` | checks everything; writes signed reports |
| `expire`, `compare` | removes old points; compares two points |

`tidelog.capture` writes points.
"""
