"""Copying logs by batch: out of a folder or a cluster, into the topics of a cluster, with a map of where each offset went.

| module | owns |
|---|---|
| source_batches | what a source's batches become: those that pass as they are, those that are rebuilt |
| column_rebuilding | rebuilding: rows of columns into batches without gaps |
| planning | what is read of a source topic |
| copier | one partition's copy: chunks, a transaction each, resumed where the last one ended |
| offset_map, offset_map_file | where each offset went, kept in files |
| replay | which window of a topic goes where, fixed at the first start |
| target_topics | topics made like the source's |
| mirror_folder, mirror_groups | what a mirror keeps beside its maps; the source's groups in the target |
| failover | where a group goes on in a mirror |

Needs Arrow. `tidelog.spark.jobs` runs this, a partition a task.
"""
