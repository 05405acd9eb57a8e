# SPDX-License-Identifier: Apache-2.0
"""Adapters that other projects load by name: a block store behind their interfaces."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace._arguments import byte_count
from headrace.errors import InvalidArgumentError
from headrace.store import Store, Tier

_NO_TIER = 4


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
        InvalidArgumentError: A tier has an unknown field, or the blocks of the server are shorter;
            else as `headrace.Store` and `headrace.Store.connect`.
    """
    if connect is not None:
        store = Store.connect(connect)
        length = byte_count(block_bytes, "connect to a shared store")
        # No store has this tier, so nothing is put.
        if store.put_many(["length"], [bytes(length)], _NO_TIER).outcomes == ["wrong_length"]:
            store.close()
            cause, remedy = "its blocks are shorter", f"serve it with '--block {length}' or more"
            raise InvalidArgumentError(f"use the store at '{connect}'", cause, remedy)
        return store
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
