# SPDX-License-Identifier: Apache-2.0
"""Functions of the caller's own that choose where a cache places copies, and what moves them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._arguments import NODE_MAX, node_list, one_of, whole_number
from headrace.engine import POLICIES, Engine, MoverInfo, Policy
from headrace.errors import InvalidArgumentError, TypeMismatchError


@dataclass(frozen=True, slots=True)
class MoveContext:
    """Input of a mover policy.

    Attributes:
        movers: The candidates: all devices, or the worker threads of all nodes.
        loads: Requests in flight at each candidate.
        source_node: Node of the source; None if unknown.
        target_node: Node of the copy; None if unknown.
        caller_node: Node of the accessing thread; None if unknown.
        byte_count: Length of the copy, or of all copies of a batch (`Cache.access_many`).
        sequence: Counter of the engine's submissions, for round-robin.
    """

    movers: tuple[MoverInfo, ...]
    loads: tuple[int, ...]
    source_node: int | None
    target_node: int | None
    caller_node: int | None
    byte_count: int
    sequence: int


Mover = Callable[[MoveContext], int | Iterable[int]]
"""Chooses movers: returns indexes into `MoveContext.movers`, one or several."""


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """Input of a function that places copies.

    Attributes:
        caller_node: Node of the accessing thread; None if unknown.
        address: Of the source.
        byte_count: Length of the source.
    """

    caller_node: int | None
    address: int
    byte_count: int


Placer = Callable[[PlacementContext], int | Iterable[int] | None]
"""Chooses nodes for a copy, best first; None: the data stays at the source."""

Placement = str | int | Mapping[int, int | Sequence[int]] | Placer
"""Where copies go: see `Cache`."""


def parse_mover(mover: Policy | Mover | None, engine: Engine) -> object:
    if mover is None or isinstance(mover, str):
        return one_of(mover, POLICIES, "policy")
    if not callable(mover):
        raise TypeMismatchError(
            "take the mover of a cache",
            f"it is a {type(mover).__name__}",
            "pass the name of a policy, a function or None",
        )
    known = {info.name: info for info in engine.mover_infos}
    choose = mover

    def ask(names: list[str], loads: list[int], *others: Any) -> list[int]:  # noqa: ANN401
        movers = tuple(known[name] for name in names)
        chosen = choose(MoveContext(movers, tuple(loads), *others))
        indexes = list(chosen) if isinstance(chosen, Iterable) else [chosen]
        tried = "take the choice of a mover policy"
        if not indexes:
            raise InvalidArgumentError(tried, "it is empty", "return at least one index")
        return [whole_number(index, tried, 0, len(names) - 1) for index in indexes]

    return ask


Places = str | int | dict[int, list[int]] | Callable[[int | None, int, int], list[int]]


def parse_placement(placement: Placement) -> Places:
    if isinstance(placement, str):
        return placement
    tried = "take the placement of a cache"
    if callable(placement):
        choose = placement

        def ask(caller_node: int | None, address: int, byte_count: int) -> list[int]:
            nodes = choose(PlacementContext(caller_node, address, byte_count))
            if nodes is None:
                return []
            return node_list(nodes if isinstance(nodes, Iterable) else [nodes], tried)

        return ask
    if not isinstance(placement, Mapping):
        wanted = "fastest, local, none, the number of a node, a map of them, or a function"
        return whole_number(placement, tried, 0, NODE_MAX, wanted)
    return {
        whole_number(caller, tried, 0, NODE_MAX): node_list(
            nodes if isinstance(nodes, Iterable) else [nodes], tried
        )
        for caller, nodes in placement.items()
    }
