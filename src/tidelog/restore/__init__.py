"""Restores a backup to a moment: into a data folder that Kafka can open, or into a running cluster (docs/restore.md).

| module | owns |
|---|---|
| `request`, `cuts` | the request; the plan: the point, the topics, and where each partition ends |
| `points` | opens each point once |
| `moment` | committed offsets and decided transactions at the moment |
| `folder_target`, `folder_groups` | writes topics and groups' positions into a data folder |
| `cluster_target` | copies topics and groups' positions into a cluster |
| `read_back`, `digest`, `unordered_digest` | reads restored records back, and compares them with the backup |
| `retention` | finds old records that a broker would delete at once |
| `restoring`, `runner`, `result` | runs all steps, on threads or Spark's workers; the result |

::

    backup.points ── cuts ──┬── folder_target    batches as they are: offsets, epochs, producers
                            └── cluster_target   copying.copier: new offsets, offset maps, groups through the maps
"""
