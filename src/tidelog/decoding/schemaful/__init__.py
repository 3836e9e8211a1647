"""Schemas of Avro, Protobuf and JSON Schema as Arrow types, and the decoders that need a schema."""
