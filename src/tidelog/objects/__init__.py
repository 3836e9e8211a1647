"""Presents objects in a bucket as read-only paths and open files, with the interfaces that readers use for folders.

`address.py` an address and the options that it carries · `settings.py` configuration, from the options and the environment ·
`object_path.py` paths · `listing.py` one listing of everything below an address · `object_file.py` reading an object, with few
requests · `read_ahead.py` ranges that are fetched before they are needed · `disk_cache.py` indexes kept on this machine's disk ·
`stores.py` which library a service has · `object_store.py`, `hdfs_store.py` the requests themselves
"""
