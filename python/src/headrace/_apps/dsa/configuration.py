# SPDX-License-Identifier: Apache-2.0
"""Makes the configuration for a `Wish`, in accel-config's format, and lists its changes.

A configuration is the document of `accel-config save-config`: a list of devices, each with groups
of WQs and engines. "dev" comes first in each object; attributes are in the order that the driver
requires: size and mode before threshold. Nothing here touches the system: see `apply`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from headrace._facts import Device, Facts, Queue
from headrace._words import counted
from headrace.errors import HardwareAbsentError, InvalidArgumentError

Configuration = list[dict[str, Any]]
Mode = Literal["shared", "dedicated", "both"]

MODES: tuple[Mode, ...] = ("shared", "dedicated", "both")
PRIORITY_MAX = 15
LABEL_LENGTH_MAX = 63
DEVICE_COUNT_MAX = 64

_GIB = 1 << 30
# Of a WQ, and not configured.
_SHOWN_ONLY = ("label", "state", "clients", "occupancy", "file")


@dataclass(frozen=True, slots=True)
class Limits:
    """The resource limits of a device, named as its attributes; defaults are those of DSA 1.0."""

    max_groups: int = 4
    max_engines: int = 4
    max_work_queues: int = 8
    max_work_queues_size: int = 128
    max_batch_size: int = 1024
    max_transfer_size: int = 2 * _GIB
    max_read_buffers: int = 96


@dataclass(frozen=True, slots=True)
class Wish:
    """The requested configuration, the same for every device.

    Attributes:
        device_count: Devices to configure; None for all of the machine, or one if it has none.
        group_count: Groups; WQs and engines are assigned round-robin.
        mode: Mode of the WQs; "both" alternates, a shared one first.
        entry_counts: Entries of the WQs, assigned round-robin; if empty, all are divided evenly.
        threshold: Entries of a shared WQ that programs may fill; None for all of them.
        priorities: Weights of the WQs within their groups, assigned round-robin.
        block_on_fault: Whether an engine waits for a page that is not present.
        batch_count_max: Descriptors of the largest batch, a power of two.
        transfer_bytes_max: Bytes of the largest transfer, a power of two.
        label: Prefix of the attribute "name" of the WQs; numbered if there are several.
    """

    device_count: int | None = None
    group_count: int = 1
    engine_count: int = 4
    queue_count: int = 1
    mode: Mode = "shared"
    entry_counts: tuple[int, ...] = ()
    threshold: int | None = None
    priorities: tuple[int, ...] = (10,)
    block_on_fault: bool = False
    batch_count_max: int = 1024
    transfer_bytes_max: int = 2 * _GIB
    label: str = "headrace"


# Reasons: docs/guide/doctor.md.
PRESETS: Mapping[str, Wish] = {
    "shared": Wish(block_on_fault=True),
    "8n1d1e1w": Wish(
        device_count=8, engine_count=1, threshold=128, block_on_fault=True, batch_count_max=256
    ),
    "low-latency": Wish(group_count=4, queue_count=4, mode="dedicated", batch_count_max=32),
    "throughput": Wish(queue_count=4, mode="dedicated"),
}


def limits_of(device: Device | None) -> Limits:
    """The limits of a device; unknown ones are those of DSA 1.0."""
    stated = {each.name: getattr(device, each.name, None) for each in fields(Limits)}
    return replace(Limits(), **{name: value for name, value in stated.items() if value})


def device_names(wish: Wish, facts: Facts) -> list[str]:
    """Names of the devices to configure: the machine's, or dsa0, dsa1, ... if it has none.

    On some machines the driver numbers DSA and IAA together, so names cannot be assumed.
    """
    there = [device.name for device in facts.devices or ()]
    if not there:
        return [f"dsa{index}" for index in range(wish.device_count or 1)]
    count = len(there) if wish.device_count is None else wish.device_count
    if count > len(there):
        raise HardwareAbsentError(
            f"configure {counted(count, 'device')}",
            f"this machine has {len(there)} ({', '.join(there)})",
            "ask for fewer by --devices, or list device names: `--devices dsa0,dsa2`",
        )
    return there[:count]


def check(wish: Wish, limits: Limits, name: str) -> None:
    for cause, remedy in _impossible(wish, limits):
        raise InvalidArgumentError(f"divide {name} so", cause, remedy)


def _impossible(wish: Wish, limits: Limits) -> Iterator[tuple[str, str]]:
    powers = (
        ("descriptors in a batch", wish.batch_count_max, limits.max_batch_size, "--batch"),
        ("bytes in a transfer", wish.transfer_bytes_max, limits.max_transfer_size, "--transfer"),
    )
    counts = (
        ("WQs", wish.queue_count, limits.max_work_queues, "--queues"),
        ("engines", wish.engine_count, limits.max_engines, "--engines"),
        ("groups", wish.group_count, limits.max_groups, "--groups"),
        *powers,
        *(("as priority", each, PRIORITY_MAX, "--priority") for each in wish.priorities),
    )
    for what, value, value_max, option in counts:
        if not 1 <= value <= value_max:
            yield f"{value} {what} are asked for and 1 to {value_max} are possible", f"set {option}"
    for what, value, _, option in powers:
        below = 1 << (value.bit_length() - 1)
        if value != below:
            cause = f"{value} {what} are asked for and the driver takes powers of two"
            yield cause, f"set {option} to {below} or {2 * below}"
    fewest = min(wish.engine_count, wish.queue_count)
    if wish.group_count > fewest:
        cause = (
            f"{counted(wish.group_count, 'group')} need an engine and a WQ each; the request has "
            f"{counted(wish.engine_count, 'engine')} and {counted(wish.queue_count, 'WQ')}"
        )
        yield cause, f"use at most {fewest} by --groups"
    for option, given in (("--size", wish.entry_counts), ("--priority", wish.priorities)):
        if len(given) > max(1, wish.queue_count):
            cause = f"{option} has {len(given)} numbers for {counted(wish.queue_count, 'WQ')}"
            yield cause, f"add --queues {len(given)}"
    sizes = [entry_count(wish, limits, number) for number in range(max(1, wish.queue_count))]
    if min(sizes) < 1 or sum(sizes) > limits.max_work_queues_size:
        each = " and ".join(str(size) for size in dict.fromkeys(sizes))
        cause = (
            f"{counted(wish.queue_count, 'WQ')} of {each} "
            f"{'entry' if each == '1' else 'entries'} are {sum(sizes)} and a device has "
            f"{limits.max_work_queues_size}"
        )
        share = limits.max_work_queues_size // max(1, wish.queue_count)
        yield cause, f"use at most {share} by --size, or fewer WQs"
    if wish.threshold is not None and not 1 <= wish.threshold <= min(sizes):
        cause = f"threshold {wish.threshold} of a WQ of {counted(min(sizes), 'entry')}"
        yield cause, f"use 1 to {min(sizes)} by --threshold"


def entry_count(wish: Wish, limits: Limits, number: int) -> int:
    """Entries of a WQ, by its number on its device."""
    if wish.entry_counts:
        return wish.entry_counts[number % len(wish.entry_counts)]
    return limits.max_work_queues_size // max(1, wish.queue_count)


def configure(wish: Wish, facts: Facts, names: Iterable[str] | None = None) -> Configuration:
    by_name = {device.name: device for device in facts.devices or ()}
    result = []
    for name in names if names is not None else device_names(wish, facts):
        limits = limits_of(by_name.get(name))
        check(wish, limits, name)
        result.append(_device(wish, limits, name))
    return result


def _device(wish: Wish, limits: Limits, name: str) -> dict[str, Any]:
    index = name.removeprefix("dsa")
    return {
        "dev": name,
        "groups": [
            {
                "dev": f"group{index}.{group}",
                "read_buffers_reserved": 0,
                "use_read_buffer_limit": 0,
                # All of them: fewer would limit the bandwidth of the group.
                "read_buffers_allowed": limits.max_read_buffers,
                "grouped_workqueues": [
                    _queue(wish, limits, f"wq{index}.{queue}", queue, group)
                    for queue in range(group, wish.queue_count, wish.group_count)
                ],
                "grouped_engines": [
                    {"dev": f"engine{index}.{engine}", "group_id": group}
                    for engine in range(group, wish.engine_count, wish.group_count)
                ],
            }
            for group in range(wish.group_count)
        ],
    }


def _queue(wish: Wish, limits: Limits, name: str, number: int, group: int) -> dict[str, Any]:
    mode = wish.mode
    if mode == "both":
        mode = "dedicated" if number % 2 else "shared"
    size = entry_count(wish, limits, number)
    threshold = size if wish.threshold is None else wish.threshold
    return {
        "dev": name,
        "mode": mode,
        "size": size,
        "group_id": group,
        "priority": wish.priorities[number % len(wish.priorities)],
        "block_on_fault": int(wish.block_on_fault),
        "max_batch_size": wish.batch_count_max,
        "max_transfer_size": wish.transfer_bytes_max,
        "type": "user",
        "driver_name": "user",
        "name": wish.label if wish.queue_count == 1 else f"{wish.label}{number}",
        "threshold": threshold if mode == "shared" else 0,
    }


def queue_attributes(queue: Queue) -> dict[str, Any]:
    """The present attributes of a WQ, in a configuration's format."""
    attributes = asdict(queue) | {"name": queue.label}
    return {"dev": queue.name} | {
        name: value
        for name, value in attributes.items()
        if name not in _SHOWN_ONLY and value is not None and value != ""
    }


def queues_in(configuration: Configuration) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every WQ of a configuration, with the name of its device."""
    for device in configuration:
        for group in device["groups"]:
            for queue in group.get("grouped_workqueues", ()):
                yield device["dev"], queue


def engines_in(device: Mapping[str, Any]) -> dict[str, int]:
    """Group of each engine of a device in a configuration."""
    return {
        engine["dev"]: engine["group_id"]
        for group in device["groups"]
        for engine in group.get("grouped_engines", ())
    }


def changes(configuration: Configuration, facts: Facts) -> list[str]:
    """The changes that loading the configuration would make, one a line."""
    by_name = {device.name: device for device in facts.devices or ()}
    lines = []
    for wanted in configuration:
        device = by_name.get(wanted["dev"])
        if device is None:
            lines.append(f"{wanted['dev']} is not in this machine")
        else:
            lines += _device_changes(wanted, device)
    return lines


def _device_changes(wanted: Mapping[str, Any], device: Device) -> Iterator[str]:
    if device.state == "enabled":
        yield f"{device.name} is enabled: it is disabled first, which ends the use of its WQs"
    else:
        yield f"{device.name} is {device.state or 'in an unknown state'}: it is enabled"
    there = {queue.name: queue_attributes(queue) for queue in device.queues or () if queue.size}
    asked = {queue["dev"]: queue for _, queue in queues_in([dict(wanted)])}
    for name in there.keys() - asked.keys():
        yield f"{name} is removed"
    for name, queue in asked.items():
        old = there.get(name)
        if old is None:
            yield f"{name} is added: {queue['mode']}, {counted(queue['size'], 'entry')}"
            continue
        differing = [
            f"{key} {old.get(key, '?')} -> {value}"
            for key, value in queue.items()
            if old.get(key) != value and not (key == "threshold" and queue["mode"] == "dedicated")
        ]
        yield f"{name}: {', '.join(differing)}" if differing else f"{name} stays as it is"
    engines = {engine.name: engine.group_id for engine in device.engines or ()}
    wished = engines_in(wanted)
    for name, old_group in engines.items():
        new_group = wished.get(name, -1)
        if old_group != new_group:
            where = f"to group {new_group}" if new_group >= 0 else "to no group"
            yield f"{name} moves {where}"


def to_text(configuration: Configuration) -> str:
    return json.dumps(configuration, indent=2) + "\n"
