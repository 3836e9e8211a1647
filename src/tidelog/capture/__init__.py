"""Takes backups: reads brokers or a data folder, and writes the points of a backup (`tidelog.backup` has its format).

`capture.py` one point after the other · `capture_source.py` what a source must offer · `broker_capture.py` brokers ·
`folder_capture.py` a data folder · `partition_writer.py` a partition's segments · `piece_builder.py` batches into a piece and its
indexes · `joining.py` many small pieces into one · `cut.py` the offsets at which all partitions agree about transactions ·
`rights.py` ACLs, quotas, users · `figures.py` figures for monitoring
"""
