"""Is a data folder whole and sound? `partition_rules` and `expected` are pure; `folder_verify` walks. Nothing is written."""
