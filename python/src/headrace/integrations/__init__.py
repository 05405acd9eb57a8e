# SPDX-License-Identifier: Apache-2.0
"""Adapters that other projects load by name: a block store behind their interfaces."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.store import Store, Tier


def store_of(
    tiers: Sequence[int | str | Mapping[str, Any]] = (),
    block_bytes: int | str = "1MiB",
    *,
    checksums: bool = True,
    connect: str | None = None,
) -> Store:
    """Make a store from JSON values; no calling thread copies, and closing writes to files.

    Args:
        tiers: Capacities, or mappings with the fields of `headrace.Tier`.
        block_bytes: Longest block.
        checksums: As for `headrace.Store`.
        connect: Use the store that a server has at this path instead; its options are the server's.

    Raises:
        InvalidArgumentError: A tier has an unknown field; else as `headrace.Store`.
    """
    if connect is not None:
        return Store.connect(connect)
    try:
        made = [Tier(**each) if isinstance(each, Mapping) else Tier(each) for each in tiers]
    except TypeError as error:
        raise InvalidArgumentError(
            "make the tiers of a store",
            str(error),
            "give a capacity, or the fields of headrace.Tier by name",
        ) from None
    return Store(
        made, block_bytes=block_bytes, checksums=checksums, inline_max=0, flush_on_close=True
    )
