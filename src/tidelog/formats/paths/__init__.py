"""Paths and open files of any kind: `file_path.py` defines what readers need, `local_handle.py` opens local files."""
