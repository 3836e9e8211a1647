"""Options that decode keys and values: --decode, --key-decode, --schema, --registry, --registry-config.

Other users can see a command line (`ps`), so credentials of the registry belong in the file or in the environment. The options
are kept in the context, so commands only call `decodings_in_use`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.client_options import Decorated
from tidelog.cli.local_path import LocalPath
from tidelog.cli.option_values import usage_errors

if TYPE_CHECKING:
    from tidelog.decoding.decodings import DecodeTexts, Decodings

_KEPT = "tidelog.decode."


def decode_options(function: Decorated) -> Decorated:
    """Add the options. `decodings_in_use` reads them."""
    formats = "utf8, json, avro, protobuf, msgpack, hex, auto"
    files = ".avsc, .proto, a Protobuf descriptor set (FILE#Message), or a JSON Schema"
    properties = "basic.auth.user.info, bearer.auth.token, ssl.ca.location, …"
    kept = functools.partial(click.option, expose_value=False, callback=_keep)
    repeated = functools.partial(kept, multiple=True)
    for option in (
        kept("--registry-config", metavar="FILE", type=LocalPath(), help=f"Properties of the registry: {properties}"),
        kept("--registry", metavar="URL", help="The schema registry. [default: SCHEMA_REGISTRY_URL]"),
        repeated("--schema", metavar="[TOPIC=]FILE", help=f"{files}; TOPIC.key=FILE for keys."),
        repeated("--key-decode", metavar="[TOPIC=]FORMAT", help="Decode keys: a format as for --decode."),
        repeated(
            "--decode",
            metavar="[TOPIC=]FORMAT",
            help=f"Decode values: {formats}; may be repeated. TOPIC.key=FORMAT decodes keys.",
        ),
    ):
        function = option(function)
    return function


def decode_texts() -> DecodeTexts:
    """Return the options of the running command. Raises InvalidArgumentError, StorageError."""
    from tidelog.decoding.decodings import DecodeTexts

    meta = click.get_current_context().meta
    texts, keys, schemas = (tuple(meta.get(_KEPT + name) or ()) for name in ("decode", "key_decode", "schema"))
    url, file = (meta.get(_KEPT + name) for name in ("registry", "registry_config"))
    registry = None
    if url or file:
        from tidelog.decoding.registry import SchemaRegistry
        from tidelog.properties_file import read_properties_file

        registry = SchemaRegistry.from_environment(url, {} if file is None else read_properties_file(file))
    return DecodeTexts(texts, keys, schemas, registry)


def decodings_in_use() -> Decodings | None:
    """Return the decodings that the options of the running command select; None if they decode nothing. Raises
    InvalidArgumentError, StorageError.
    """
    given = decode_texts()
    if not given.texts and not given.key_texts:
        if given.schemas or given.registry is not None:
            raise click.UsageError("--schema, --registry and --registry-config need --decode or --key-decode.")
        return None
    return parsed_decodings(given)


def parsed_decodings(given: DecodeTexts) -> Decodings:
    """Return the decodings that the options select, with the schemas of files. Raises UsageError, StorageError."""
    from tidelog.decoding.decodings import Decodings

    options = (("--decode", given.texts), ("--key-decode", given.key_texts), ("--schema", given.schemas))
    with usage_errors(", ".join(name for name, texts in options if texts)):
        decodings = Decodings.parse(given.texts, key_texts=given.key_texts, schemas=given.schemas, registry=given.registry)
    decodings.check_schemas()
    return decodings


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[f"{_KEPT}{param.name}"] = value
