"""Paths and open files of any kind: `file_path.py` says what readers need, `local_handle.py` opens the files of this machine."""
