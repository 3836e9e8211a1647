"""Loads a log from its folder: removes temporary files, recovers after a crash. Entry point: `loader.load`."""
