"""Options that decode keys and values: --decode, --key-decode, --schema, --registry, --registry-config.

Other users can see a command line (`ps`), so credentials of the registry belong in the file or in the environment. The options
are kept in the context, so commands only call `decodings_in_use`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from tidelog.cli.local_path import LocalPath

if TYPE_CHECKING:
    from tidelog.decoding.decodings import Decodings
    from tidelog.decoding.registry import SchemaRegistry

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_KEPT = "tidelog.decode."


def decode_options(function: Decorated) -> Decorated:
    """Add the options. `decodings_in_use` reads them."""
    for option in (
        click.option(
            "--registry-config",
            metavar="FILE",
            type=LocalPath(),
            expose_value=False,
            callback=_keep,
            help="Properties of the registry: basic.auth.user.info, bearer.auth.token, ssl.ca.location, …",
        ),
        click.option(
            "--registry",
            metavar="URL",
            expose_value=False,
            callback=_keep,
            help="The schema registry. [default: SCHEMA_REGISTRY_URL]",
        ),
        click.option(
            "--schema",
            metavar="[TOPIC=]FILE",
            multiple=True,
            expose_value=False,
            callback=_keep,
            help=".avsc, .proto, a Protobuf descriptor set (FILE#Message), or a JSON Schema; TOPIC.key=FILE for keys.",
        ),
        click.option(
            "--key-decode",
            metavar="[TOPIC=]FORMAT",
            multiple=True,
            expose_value=False,
            callback=_keep,
            help="Decode keys: a format as for --decode.",
        ),
        click.option(
            "--decode",
            metavar="[TOPIC=]FORMAT",
            multiple=True,
            expose_value=False,
            callback=_keep,
            help="Decode values: utf8, json, avro, protobuf, msgpack, hex, auto; may be repeated. TOPIC.key=FORMAT decodes keys.",
        ),
    ):
        function = option(function)
    return function


class DecodeTexts(NamedTuple):
    """The values of the options."""

    texts: tuple[str, ...]
    key_texts: tuple[str, ...]
    schemas: tuple[str, ...]
    registry: SchemaRegistry | None

    def decodings(self) -> Decodings:
        """Return the decodings that the options select. Raises InvalidArgumentError."""
        from tidelog.decoding.decodings import Decodings

        return Decodings.parse(self.texts, key_texts=self.key_texts, schemas=self.schemas, registry=self.registry)


def decode_texts() -> DecodeTexts:
    """Return the options of the running command. Raises InvalidArgumentError, StorageError."""
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
    return given.decodings()


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[f"{_KEPT}{param.name}"] = value
