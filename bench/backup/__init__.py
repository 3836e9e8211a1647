"""The bench of backups: `peer/` is a program of `kafka-backup-core`, which cargo compiles."""
