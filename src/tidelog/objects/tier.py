"""The location of remote storage (a tier), and the address that combines a data folder with its tier.

``tiered:/data?tier=/mnt/remote`` is the data folder ``/data`` with the remote storage ``/mnt/remote``. `%`, `&`, `#` and `+`
in either part are percent-encoded, as in any URL. ``key=[ID=]FILE``, which may be repeated, names the files with private keys,
for a layout that encrypts segments. Commands, scans and Spark build this address from their option ``tier``, and another
process can open it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeGuard

from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import SCHEME as URL
from tidelog.objects.address import ObjectAddress, is_in_storage, options_of

SCHEME = "tiered:"
_SAFE = "/:,@=*?[]~ "


class Tier(NamedTuple):
    """The address of remote storage, and the files with private keys, as ``FILE`` or ``ID=FILE``."""

    address: str
    key_files: tuple[str, ...] = ()


class TieredAddress(NamedTuple):
    """The location of one or more log directories, and of the remote storage they are tiered to."""

    folders: str
    tier: Tier

    def __str__(self) -> str:
        from urllib.parse import quote  # Import on use, because the import takes a few milliseconds.

        keys = "".join(f"&key={quote(key, _SAFE)}" for key in self.tier.key_files)
        return f"{SCHEME}{quote(str(self.folders), _SAFE.replace('?', ''))}?tier={quote(str(self.tier.address), _SAFE)}{keys}"

    def with_options(self) -> str:
        """Return the address as text that carries the options that its parts have for object storage."""
        options = options_of(self.folders) or options_of(self.tier.address)
        return ObjectAddress(str(self), options) if options else str(self)

    def in_storage(self) -> str | None:
        """Return the first part that is in object storage, or None if no part is."""
        return next((one for one in (self.folders, self.tier.address) if is_in_storage(one)), None)


def is_tiered(address: object) -> TypeGuard[str]:
    """Return whether an address names data folders with their remote storage."""
    return isinstance(address, str) and address.startswith(SCHEME)


def parse_tiered(address: str) -> TieredAddress:
    """Return the parts of an address. Parts in object storage carry the address's options. Raises InvalidArgumentError."""
    from urllib.parse import parse_qsl, unquote

    folders, _, query = address.removeprefix(SCHEME).partition("?")
    options = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    tiers = [value for name, value in options if name == "tier"]
    unknown = sorted({name for name, _ in options} - {"tier", "key"})
    if not is_tiered(address) or not folders or len(tiers) != 1 or not tiers[0] or unknown:
        raise InvalidArgumentError("not a tiered address", found=address, expected=f"{SCHEME}DIR?tier=ADDRESS[&key=FILE]")
    keys = tuple(value for name, value in options if name == "key")
    given = options_of(address)
    parts = (ObjectAddress(one, given) if given and is_in_storage(one) else one for one in (unquote(folders), tiers[0]))
    return TieredAddress(next(parts), Tier(next(parts), keys))


def absolute_tiered(address: str, absolute: Callable[[str], str]) -> str:
    """Return an address with absolute paths, for a process with a different working directory. `absolute` does this for the
    folders' address.
    """
    folders, tier = parse_tiered(address)
    place = tier.address if URL.match(tier.address) else str(Path(tier.address).absolute())
    keys = []
    for key in tier.key_files:
        key_id, equals, file = key.partition("=")
        keys.append(f"{key_id}={Path(file).absolute()}" if equals else str(Path(key).absolute()))
    return TieredAddress(absolute(folders), Tier(place, tuple(keys))).with_options()
