# SPDX-License-Identifier: Apache-2.0
"""Runs on node 3 of a guest of which dsa6 fails all copies: caches and a store.

Prints as JSON, for each step, the devices that accepted descriptors and where the bytes are.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace
from headrace import _core
from headrace.engine import Policy

NODE = 3
BYTES = 512 << 10  # A part for each of eight devices.
BLOCK_BYTES = 64 << 10
found: dict[str, Any] = {}


def source(node: int, number: int) -> Any:  # noqa: ANN401 - An array of the extension.
    made = _core.node_memory(BYTES, node)
    made[:] = np.arange(BYTES, dtype=np.uint32) * (2 * number + 1) >> 3
    return made


@contextmanager
def devices(engine: headrace.Engine, step: str) -> Iterator[None]:
    """Note the devices that get work, and of those the ones that failed."""
    before = engine.device_statistics
    yield
    now = engine.device_statistics
    for what, field in ((step, "descriptors"), (f"{step}: failed", "errors")):
        used = {
            name.split("/")[0]
            for name in now
            if getattr(now[name], field) > getattr(before[name], field)
        }
        if used or field == "descriptors":
            found[what] = sorted(used)


def node_of(entry: headrace.Entry, expected: Any) -> int | None:  # noqa: ANN401 - An array.
    """The node of a correct copy by the kernel; None: the entry is the source."""
    entry.wait()
    view = np.asarray(entry)
    if not np.array_equal(view, expected):
        raise SystemExit("a copy is wrong")
    nodes = {_core.node_of_address(view.ctypes.data + at) for at in range(0, BYTES, 4096)}
    if entry.cached and nodes != {entry.node}:
        raise SystemExit(f"an entry of node {entry.node} lies on {nodes}")
    return entry.node if entry.cached else None


def by_function(context: headrace.MoveContext) -> list[int]:
    """The devices of the farthest node."""
    return [at for at, mover in enumerate(context.movers) if mover.node == 7]


def try_policies(engine: headrace.Engine) -> None:
    """Threads on node 3 read columns of another node: which devices move them, and to where."""
    policies: list[Policy] = ["by_size", "all", "smart_copy", "push_pull", "near_source"]
    for policy in [*policies, "function"]:
        mover: Any = policy if policy != "function" else by_function
        with headrace.Cache(engine, "16MiB", mover=mover) as cache:
            for node in (NODE, 5):
                column = source(node, node)
                with devices(engine, f"{policy} from {node}"):
                    found[f"{policy} from {node}: copy"] = node_of(cache.access(column), column)


def try_full_nodes(engine: headrace.Engine) -> None:
    columns = [source(NODE, number) for number in range(4)]
    with headrace.Cache(engine, 2 * BYTES, {NODE: [11, 8]}) as cache:
        held = [cache.access(column) for column in columns]
        found["full: next"] = [node_of(*each) for each in zip(held, columns, strict=True)]
        with devices(engine, "full: source"):
            more = source(NODE, 9)
            found["full: copy"] = node_of(cache.access(more), more)
        del held
        found["flush of 11"] = cache.flush(11)
        found["after the flush"] = [
            node_of(cache.access(column, weak=True), column) for column in columns
        ]


def try_invalidation(engine: headrace.Engine) -> None:
    """What changes while devices copy is not read from copies of what was."""
    column = source(NODE, 1)
    with headrace.Cache(engine, "16MiB", lambda context: 8 + (context.caller_node or 0)) as cache:
        for _ in range(20):
            entry = cache.access(column)
            cache.invalidate(column)
            column += 1
            node_of(cache.access(column), column)
            cache.invalidate(column)
            del entry
        found["invalidated"] = cache.statistics.misses


def try_store(engine: headrace.Engine, path: str) -> None:
    tiers = [
        headrace.Tier(8 * BLOCK_BYTES, node=11),
        headrace.Tier(8 * BLOCK_BYTES, node=NODE),
        headrace.Tier("8MiB", path=path),
    ]
    blocks = [bytes(source(NODE, number)[:BLOCK_BYTES]) for number in range(32)]
    with headrace.Store(
        tiers, block_bytes=BLOCK_BYTES, inline_max=0, promote_after=0, engine=engine
    ) as store:
        with devices(engine, "store: puts"):
            for number, block in enumerate(blocks):
                store.put(f"{number}", block)
        found["store: equal"] = sum(
            store.get(f"{number}") == block for number, block in enumerate(blocks)
        )
        found["store: blocks"] = [tier.blocks for tier in store.statistics.tiers]
        found["store: hits"] = [tier.hits for tier in store.statistics.tiers]
        found["store: access"] = [tier.access for tier in store.statistics.tiers]


def main() -> None:
    machine = headrace.topo()
    with headrace.Engine(machine, path="dsa") as engine:
        try_policies(engine)
        try_full_nodes(engine)
        try_invalidation(engine)
    with headrace.Engine(machine, path="dsa", policy="push_pull") as engine:
        try_store(engine, sys.argv[1])
    json.dump(found, sys.stdout, indent=1)


main()
