"""The bytes of record batches: headers, records, codecs, control records, builders, and the column kernel.

Pure: no files, no clock, no event loop, no Arrow. `formats/` and everything above it may call.
"""
