"""Restores a backup to a moment: into a data folder that Kafka opens, or into a running cluster. docs/backup.md shows how.

`request.py` what is wanted · `points.py` points, opened once · `cuts.py` the point, the topics, and where each partition ends ·
`moment.py` what groups had committed and which transactions were decided at that moment · `folder_target.py` a data folder ·
`folder_groups.py` positions of groups in one · `cluster_target.py` a cluster · `digest.py` compares records · `restoring.py`
all of it in order · `result.py` what was restored

::

    backup.points ── cuts ──┬── folder_target    batches as they are: offsets, epochs, producers
                            └── cluster_target   copying.copier: new offsets, offset maps, groups through the maps
"""
