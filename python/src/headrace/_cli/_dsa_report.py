# SPDX-License-Identifier: Apache-2.0
"""What ``headrace dsa`` shows of devices: text for people, made from the facts."""

import re
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace import _core
from headrace._apps.doctor.checks_device import is_in_use, way_in
from headrace._apps.dsa.facts import Device, Facts, Queue, number_in
from headrace._apps.dsa.status import explain_command_status, explain_errors
from headrace._words import counted

_WIDTH_MAX = 1000
_STYLES = {"enabled": "green", "disabled": "dim", "halted": "bold red", "locked": "yellow"}


def print_devices(console: Console, facts: Facts) -> None:
    """Print every device with its groups, engines and WQs, whatever their state."""
    for device in facts.devices or ():
        _print_device(console, device)


def _print_device(console: Console, device: Device) -> None:
    title = Text(device.name, style="bold")
    title.append(f": {', '.join(_properties(device))}", style="not bold")
    console.print(title, soft_wrap=True)
    for said in (explain_errors(device.errors), explain_command_status(device.cmd_status)):
        if said:
            console.print(Text(f"  {said}", style="yellow"), soft_wrap=True)
    for line in _groups(device):
        console.print(Text(f"  {line}"), soft_wrap=True)
    shown = [queue for queue in device.queues or () if queue.size or queue.state == "enabled"]
    if not shown:
        console.print("  no WQ has entries: see 'headrace dsa configure'")
    else:
        table = _table(device, shown)
        # A terminal may wrap the lines; figures are never cut.
        unlimited = console.options.update(width=_WIDTH_MAX)
        width = Measurement.get(console, unlimited, table).maximum
        console.print(table, width=max(width, console.width))
    rest = len(device.queues or ()) - len(shown)
    if shown and rest:
        console.print(f"  {counted(rest, 'more WQ')} without entries")
    console.print()


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


def _table(device: Device, queues: list[Queue]) -> Table:
    table = Table(box=None, pad_edge=True, header_style="bold", padding=(0, 1, 0, 1))
    for name in ("WQ", "name", "mode", "state", "type"):
        table.add_column(name, no_wrap=True)
    figures = ("group", "size", "thresh.", "prio.", "BOF", "batch", "transfer", "clients")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("from here", no_wrap=True)
    for queue in queues:
        transfer = queue.max_transfer_size
        table.add_row(
            queue.name,
            queue.label if queue.label is None else Text(queue.label),
            queue.mode,
            Text(queue.state or "?", style=_STYLES.get(queue.state or "", "")),
            queue.type,
            *(
                "?" if value is None else str(value)
                for value in (
                    queue.group_id,
                    queue.size,
                    queue.threshold if queue.mode == "shared" else "",
                    queue.priority,
                    queue.block_on_fault,
                    queue.max_batch_size,
                )
            ),
            "?" if transfer is None else _core.bytes_text(max(0, transfer)),
            "?" if queue.clients is None else str(queue.clients),
            _from_here(device, queue),
        )
    return table


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
    """The figures one would quote."""
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
