"""Restores a backup to a moment: into a data folder that Kafka can open, or into a running cluster (docs/restore.md).

`request.py` the request · `points.py` points, opened once · `cuts.py` the plan: the point, the topics, and where each partition
ends · `moment.py` committed offsets and decided transactions at that moment · `folder_target.py` a data folder ·
`folder_groups.py` positions of groups in a data folder · `cluster_target.py` a cluster · `digest.py` compares records ·
`restoring.py` runs all steps · `result.py` the result

::

    backup.points ── cuts ──┬── folder_target    batches as they are: offsets, epochs, producers
                            └── cluster_target   copying.copier: new offsets, offset maps, groups through the maps
"""
