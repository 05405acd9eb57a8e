# SPDX-License-Identifier: Apache-2.0
"""``headrace store``: serve a store; look into the files of stores, check, copy and resize them."""

import grp
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headrace import _core
from headrace._cli._app import Group
from headrace._cli._options import Count, Duration, FilePath, Name, Size, json_option
from headrace._cli._output import EXIT_FAILED, live_stdout, print_document
from headrace._files import file_error, is_there
from headrace._signals import noticed
from headrace._words import counted
from headrace.errors import InvalidArgumentError, IoFailedError, NotFoundError
from headrace.machine import topo
from headrace.store import Store, StoreStatistics, Tier

_BATCH = 64
_LOOK_S = 0.05
_GOOD = frozenset({"whole", "unverified", "unproven"})
"""States of entries that a store would serve."""

command = Group(
    "store",
    """Serve a store to the processes of this host; check, copy and resize files of stores.

    No store may have the file open.

    Example: headrace store check blocks
    """,
)
_file_argument = click.argument("file", type=FilePath(), metavar="FILE")
_new_file_argument = click.argument("to", type=FilePath(), metavar="TO")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace") if key else "(unknown)"


def _summary(found: dict[str, Any]) -> dict[str, int]:
    good = {key: count for key, count, state in found["entries"] if state in _GOOD}
    return {
        "block_bytes": found["block_bytes"],
        "capacity_blocks": found["capacity_blocks"],
        "blocks": len(good),
        "bytes": sum(good.values()),
        "with_checksum": found["with_checksum"],
        "bad": sum(state not in _GOOD for _, _, state in found["entries"]),
    }


def _print(found: dict[str, Any]) -> None:
    summary = _summary(found)
    capacity_bytes = summary["capacity_blocks"] * summary["block_bytes"]
    click.echo(
        f"{counted(summary['blocks'], 'block')} of {summary['capacity_blocks']:,}, each of up to "
        f"{_core.bytes_text(summary['block_bytes'])}; {_core.bytes_text(summary['bytes'])} of "
        f"{_core.bytes_text(capacity_bytes)}; {summary['with_checksum']:,} with a checksum"
    )
    states = Counter(state for _, _, state in found["entries"])
    click.echo(", ".join(f"{count:,} {state}" for state, count in sorted(states.items())))


@command.command("check")
@_file_argument
@json_option
def check(file: str, *, as_json: bool) -> None:
    """Read every block of a file and compare it with its checksum; change nothing.

    Exit code 1 if a block is torn, corrupt or unreadable; these are listed.

    Example: headrace store check blocks
    """
    found = _core.inspect_file(file, verifies=True)
    bad = [(state, _text(key)) for key, _, state in found["entries"] if state not in _GOOD]
    if as_json:
        results = {"bad": [{"state": state, "key": key} for state, key in bad]}
        summary = _summary(found)
        print_document("store-check", machine=topo().document, results=results, summary=summary)
    else:
        _print(found)
        for state, key in bad:
            click.echo(f"{state:>12}  {key}")
    if bad:
        sys.exit(EXIT_FAILED)


def _print_served(totals: StoreStatistics) -> None:
    for number, tier in enumerate(totals.tiers):
        click.echo(
            f"tier {number} ({tier.access}): {tier.blocks:,} of "
            f"{counted(tier.capacity_blocks, 'block')}, {tier.hits:,} read, {tier.puts:,} put"
        )
    for each in totals.clients:
        click.echo(
            f"process {each.process}: {counted(each.requests, 'request')}, "
            f"{counted(each.reads_in_place, 'read')} in place, {counted(each.leases, 'lease')}, "
            f"{counted(each.pins, 'pin')}"
        )


@command.command("serve")
@click.argument("socket", type=FilePath(), metavar="SOCKET")
@click.option("--memory", type=Size(1), required=True, help="Memory of the first tier.")
@click.option("--file", type=FilePath(), help="A file below the memory; made if missing.")
@click.option("--capacity", type=Size(1), default=0, help="Of a new file.")
@click.option("--block", type=Size(1), default="1MiB", help="Longest block.")
@click.option("--clients", type=Count(1, 64), default="16", help="Clients at a time.")
@click.option("--group", type=Name(".+", "a group"), help="Its members may connect as well.")
@click.option(
    "--replace", type=Duration(0.001, 86400), help="End the server there; wait up to TIME."
)
@json_option
def serve(
    socket: str,
    memory: int,
    file: str | None,
    capacity: int,
    block: int,
    clients: int,
    group: str | None,
    replace: float | None,
    *,
    as_json: bool,
) -> None:
    """Serve a store to the processes of this host until Ctrl-C, then show its totals.

    They use it by Store.connect(SOCKET). Blocks only in memory are written to the file at the end.

    Example: headrace store serve /tmp/blocks.socket --memory 64MiB
    """
    tiers = [Tier(memory), *([Tier(capacity, path=file)] if file else [])]
    try:
        group_id = None if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        cause, remedy = f"there is no group '{group}'", "see 'getent group'"
        raise InvalidArgumentError("serve a store", cause, remedy) from None
    with (
        noticed() as is_over,
        Store(
            tiers,
            block_bytes=block,
            flush_on_close=file is not None,
            share=socket,
            clients_max=clients,
            group=group_id,
            replace_within_s=replace or 0.0,
        ) as store,
    ):
        if not as_json:
            print(f"serving at {socket}", file=live_stdout(), flush=True)
        while not is_over():
            time.sleep(_LOOK_S)
        totals = store.statistics
        if not as_json:
            return _print_served(totals)
        tier_totals = [asdict(each) for each in totals.tiers]
        summary = {"blocks": totals.blocks, "bytes_in": totals.bytes_in, "misses": totals.misses}
        summary |= {"hits": sum(each.hits for each in totals.tiers)}
        machine = topo().document
        print_document(
            "store-serve", machine=machine, results={"tiers": tier_totals}, summary=summary
        )
    return None


@command.command("stat")
@_file_argument
def stat(file: str) -> None:
    """Show the sizes of a file and the number of its blocks; read no block.

    Of the socket of a server: totals of its tiers and clients.

    Example: headrace store stat blocks
    """
    if Path(file).is_socket():
        with Store.connect(file) as store:
            return _print_served(store.statistics)
    return _print(_core.inspect_file(file, verifies=False))


@command.command("ls")
@_file_argument
def ls(file: str) -> None:
    """List the keys in a file, with the length of each block.

    Example: headrace store ls blocks
    """
    for key, byte_count, state in sorted(_core.inspect_file(file, verifies=False)["entries"]):
        if state in _GOOD:
            click.echo(f"{byte_count:>12}  {_text(key)}")


@command.command("rm")
@_file_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def rm(file: str, keys: Sequence[str]) -> None:
    """Remove blocks by their keys.

    Example: headrace store rm blocks first second
    """
    with _opened(file, _core.inspect_file(file, verifies=False)) as store:
        for key in keys:
            if not store.remove(os.fsencode(key)):
                raise NotFoundError(f"remove '{key}'", "no block has this key", "see 'store ls'")


@command.command("copy")
@_file_argument
@_new_file_argument
def copy(file: str, to: str) -> None:
    """Copy the good blocks of a file into a new one of the same sizes.

    Opening FILE drops its torn entries; 'headrace store check' lists them.

    Example: headrace store copy blocks blocks.backup
    """
    _copy(file, to, None)


@command.command("resize")
@_file_argument
@click.argument("capacity", type=Size(1), metavar="CAPACITY")
def resize(file: str, capacity: int) -> None:
    """Give a file another capacity; of a smaller one the latest blocks stay.

    Writes FILE.resized and renames it, so the disk needs room for both.

    Example: headrace store resize blocks 16GiB
    """
    _copy(file, f"{file}.resized", capacity)


def _opened(file: str, found: dict[str, Any]) -> Store:
    return Store([Tier(0, path=file)], block_bytes=found["block_bytes"])


def _copy(file: str, to: str, capacity: int | None) -> None:
    """Copy into a new file, which with a capacity replaces the first one while both are locked."""
    tried = f"copy the store '{file}'"
    found = _core.inspect_file(file, verifies=False)
    if is_there(Path(to), tried):
        raise InvalidArgumentError(tried, f"'{to}' exists", "name a new file")
    block_bytes = found["block_bytes"]
    slots = found["capacity_blocks"] if capacity is None else capacity // block_bytes
    if slots == 0:
        raise InvalidArgumentError(tried, "there is no room for a block", "ask for more")
    # In the order of their puts.
    keys = [key for key, _, state in found["entries"] if state in _GOOD]
    keys = list(dict.fromkeys(reversed(keys)))[:slots][::-1]
    lost = 0
    try:
        with (
            _opened(file, found) as source,
            Store([Tier(slots * block_bytes, path=to)], block_bytes=block_bytes) as target,
        ):
            for begin in range(0, len(keys), _BATCH):
                some = keys[begin : begin + _BATCH]
                buffers = [memoryview(bytearray(block_bytes)) for _ in some]
                counts = source.get_many(some, buffers).byte_counts
                good = [each for each in zip(some, buffers, counts, strict=True) if each[2]]
                lost += len(some) - len(good)
                names = [key for key, _, _ in good]
                target.put_many(names, [block[:count] for _, block, count in good]).check()
                for name in names:
                    target.pin(name)  # A file that is nearly full makes room in advance.
            if capacity is not None and not lost:
                Path(to).replace(file)
    except BaseException as problem:
        Path(to).unlink(missing_ok=True)
        if isinstance(problem, OSError):
            raise file_error(problem, tried) from None
        raise
    if lost:
        if capacity is not None:
            Path(to).unlink()
        raise IoFailedError(
            tried, f"{counted(lost, 'block')} could not be read", "see 'headrace store check'"
        )
