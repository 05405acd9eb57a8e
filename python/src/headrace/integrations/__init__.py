# SPDX-License-Identifier: Apache-2.0
"""Adapters that other projects load by name: a block store behind their interfaces."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.store import Store, Tier


def store_of(
    tiers: Sequence[int | str | Mapping[str, Any]],
    block_bytes: int | str,
    *,
    checksums: bool = False,
) -> Store:
    """Make a store from JSON configuration values; no calling thread copies.

    Args:
        tiers: Capacities, or mappings with the fields of `headrace.Tier`.
        block_bytes: Longest block.
        checksums: As for `headrace.Store`.

    Raises:
        InvalidArgumentError: A tier has an unknown field; else as `headrace.Store`.
    """
    try:
        made = [Tier(**each) if isinstance(each, Mapping) else Tier(each) for each in tiers]
    except TypeError as error:
        raise InvalidArgumentError(
            "make the tiers of a store",
            str(error),
            "give a capacity, or capacity, node, path, durability and eviction by name",
        ) from None
    return Store(made, block_bytes=block_bytes, checksums=checksums, inline_max=0)
