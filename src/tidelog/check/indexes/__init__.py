"""Indexes of a folder compared with its logs, and built anew. `index_verify` and `folder_rebuild` are the ways in."""
