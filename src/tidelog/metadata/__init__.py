"""A cluster's metadata in KRaft's form: record tables, frames, the image that the records build, snapshots (KIP-631, KIP-630).

Pure: bytes in, bytes out; no files, no clock, no event loop. Files are read by `reader/metadata_log`, and written by
`storage/metadata`. See docs/spec/metadata-log.md.
"""
