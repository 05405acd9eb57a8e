# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace dsa``: text for people."""

import re
from collections.abc import Iterator
from typing import Any

from headrace import _core
from headrace._apps.doctor.checks_device import is_in_use, way_in
from headrace._apps.dsa.status import explain_command_status, explain_errors
from headrace._cli._report import Column, Report, Styled, figures
from headrace._facts import Device, Facts, Queue, number_in
from headrace._words import counted

_STYLES = {"enabled": "green", "disabled": "dim", "halted": "bold red", "locked": "yellow"}
_COLUMNS = (
    Column("WQ"),
    Column("name", optional=1),
    Column("mode"),
    Column("state"),
    Column("type"),
    Column("group", right=True, optional=2),
    *figures("size", "thresh.", "prio."),
    Column("BOF", right=True, optional=3),
    Column("batch", right=True, optional=5),
    Column("transfer", right=True, optional=6),
    Column("clients", right=True, optional=4),
    Column("from here", folds=True),
)


def print_devices(report: Report, facts: Facts) -> None:
    """Print every device with its groups, engines and WQs, whatever their state."""
    for device in facts.devices or ():
        _print_device(report, device)


def _print_device(report: Report, device: Device) -> None:
    report.say(f"{device.name}: {', '.join(_properties(device))}", "bold")
    for said in (explain_errors(device.errors), explain_command_status(device.cmd_status)):
        if said:
            report.say(said, "yellow", head="  ")
    for line in _groups(device):
        report.say(line, head="  ")
    shown = [queue for queue in device.queues or () if queue.size or queue.state == "enabled"]
    if not shown:
        report.say("no WQ has entries: see 'headrace dsa configure'", head="  ")
    else:
        report.table(_COLUMNS, [_row(device, queue) for queue in shown], indent=2)
    rest = len(device.queues or ()) - len(shown)
    if shown and rest:
        report.say(f"{counted(rest, 'more WQ')} without entries", head="  ")
    report.say()


def _properties(device: Device) -> Iterator[str]:
    yield device.state or "state unknown"
    node = device.node
    yield "node unknown" if node is None else "no node" if node < 0 else f"node {node}"
    if device.pci_address:
        yield device.pci_address
    if device.version and re.fullmatch(r"0x[0-9a-f]{1,8}", device.version):
        number = int(device.version, 16)
        yield f"DSA {number >> 8}.{number & 0xFF}"
    yield "PASID " + {None: "unknown", 0: "off"}.get(device.pasid_enabled, "on")
    used = sum(queue.size or 0 for queue in device.queues or ())
    yield f"{used} of {device.max_work_queues_size or '?'} entries given out"


def _groups(device: Device) -> Iterator[str]:
    for group in device.groups or ():
        number = number_in(group.name)
        engines = [e.name for e in device.engines or () if e.group_id == number]
        queues = [q.name for q in device.queues or () if q.group_id == number]
        if engines or queues:
            yield (
                f"{group.name}: {', '.join(queues) or 'no WQ'} on "
                f"{', '.join(engines) or 'no engine'}"
            )
    idle = [e.name for e in device.engines or () if e.group_id is not None and e.group_id < 0]
    if idle:
        yield f"in no group: {', '.join(idle)}"


def _row(device: Device, queue: Queue) -> list[str]:
    def number(value: int | None) -> str:
        return "?" if value is None else str(value)

    state = queue.state or "?"
    transfer = queue.max_transfer_size
    return [
        queue.name,
        queue.label or "",
        queue.mode or "?",
        Styled(state, _STYLES.get(state, "")),
        queue.type or "?",
        number(queue.group_id),
        number(queue.size),
        number(queue.threshold) if queue.mode == "shared" else "",
        number(queue.priority),
        number(queue.block_on_fault),
        number(queue.max_batch_size),
        "?" if transfer is None else _core.bytes_text(max(0, transfer)),
        number(queue.clients),
        _from_here(device, queue),
    ]


def _from_here(device: Device, queue: Queue) -> str:
    way = way_in(device, queue)
    if way is not None:
        return way
    file = queue.file
    reasons = (
        ("the kernel's", queue.type == "kernel"),
        ("off", "enabled" not in {queue.state} & {device.state}),
        ("in use", is_in_use(queue)),
        ("no file", file is not None and file.exists is False),
        ("not permitted", file is not None and file.writable is False),
    )
    opened = None if file is None else file.opened or file.mapped
    return next((word for word, applies in reasons if applies), opened or "?")


def summary_of(facts: Facts) -> dict[str, Any]:
    devices = facts.devices or ()
    queues = [queue for device in devices for queue in device.queues or () if queue.size]
    ways = [way_in(device, queue) for device in devices for queue in device.queues or ()]
    return {
        "device_count": len(devices),
        "device_enabled_count": sum(device.state == "enabled" for device in devices),
        "queue_count": len(queues),
        "queue_enabled_count": sum(queue.state == "enabled" for queue in queues),
        "queue_usable_count": sum(way is not None for way in ways),
    }
