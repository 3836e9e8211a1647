"""Loads a log from its folder: removes temporary files, and recovers the log after a crash. The entry point is `loader.load`."""
