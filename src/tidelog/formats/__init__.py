"""The formats of a log's files, and reading of files that another process may be changing.

This room lists no folders. `reader` does, and `storage` for the folder that it owns.
"""
