"""The format of a backup, and reading one: it is made of Kafka's own segment files. `docs/backup.md` describes the format.

`layout.py` the names of all objects · `manifest.py` the manifests · `target.py` the folder or the bucket ·
`backup.py` points, and their topics, partitions, segments and files · `joined_file.py` several objects read as one
file · `backup_path.py` a point as a data folder · `opening.py` opens the address of any folder or backup · `verify.py`
checks everything · `expire.py` removes old points · `compare.py` compares two points

Nothing here writes a point: `tidelog.capture` does.
"""
