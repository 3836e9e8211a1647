"""The formats of a log's files, and reading of files that another process may be changing.

This package lists no folders: `reader` lists any folder, `storage` the folder that it owns.
"""
