"""Backups beside their peer: `backup_bench.py` runs both; `peer/` is a program of `kafka-backup-core`, which cargo compiles."""
