"""Converts schemas of Avro, Protobuf and JSON Schema to Arrow types, and decodes values with these schemas."""
