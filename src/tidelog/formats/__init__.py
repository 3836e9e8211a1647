"""The formats of a log's files, and how to read files that another process may be changing.

This package lists no folders: `reader` lists any folder, `storage` lists the folder that it owns.
"""
