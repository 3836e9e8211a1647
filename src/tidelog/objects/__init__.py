"""Presents objects in a bucket as read-only paths and open files, with the interfaces that readers use for folders.

| module | owns |
|---|---|
| `address`, `tier` | an address with its options; an address that combines a folder with remote storage |
| `settings` | the configuration, from options and the environment |
| `opening`, `object_path`, `listing` | opens addresses; paths; one listing of everything below an address |
| `object_file`, `read_ahead` | reads an object with few requests; fetches ranges before they are needed |
| `disk_cache` | caches indexes on this machine's disk |
| `stores`, `object_store`, `hdfs_store` | chooses the library for a service; sends the requests |
"""
