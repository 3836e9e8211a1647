"""The format of a backup, and how a backup is read. Backups consist of Kafka's own segment files (see `docs/backup.md`).

`layout.py` the names of all objects · `manifest.py` the manifests · `target.py` the folder or the bucket ·
`backup.py` points, and their topics, partitions, segments and files · `joined_file.py` several objects read as one
file · `backup_path.py` a point as a data folder · `opening.py` opens the address of any folder or backup · `verify.py`
checks everything · `expire.py` removes old points · `compare.py` compares two points

Points are written by `tidelog.capture`.
"""
