"""Takes backups: reads brokers or a data folder, and writes the points of a backup (`tidelog.backup` has its format).

`capture.py` takes points · `capture_source.py` the interface of a source · `broker_capture.py` brokers · `folder_capture.py` a
data folder · `partition_writer.py` a partition's segments · `piece_builder.py` batches into a piece and its indexes ·
`joining.py` joins small pieces · `cut.py` offsets that split no transaction · `rights.py` ACLs, quotas, users · `figures.py`
metrics
"""
