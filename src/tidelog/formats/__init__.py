"""The files of a log: what their bytes mean, and how files are read that another process may be changing.

No folder is walked here: that is `reader`'s, and `storage`'s for the folder that it owns.
"""
