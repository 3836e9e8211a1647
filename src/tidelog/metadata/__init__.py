"""A cluster's metadata in KRaft's form: record tables, frames, the image that the records build, snapshots (KIP-631, KIP-630).

This package has no I/O, no clock and no event loop: it maps bytes to values and back. `reader/metadata_log` reads the files, and
`storage/metadata` writes them. See docs/spec/metadata-log.md.
"""
