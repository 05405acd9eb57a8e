# SPDX-License-Identifier: Apache-2.0
"""Machines in QEMU: the nodes, devices and persistent memory of a record, with this system in it.

`hardware` converts a machine to arguments of QEMU, `kernel` finds what boots, `image` packs it, and
`guest` runs one command. `init.sh` is the guest's side. Memory of all nodes is equally fast, so
nothing can be timed in a guest.
"""

from contextlib import suppress
from pathlib import Path

from headrace.errors import HardwareAbsentError

STATE = Path("/run/headrace-machine")
"""A folder that only guests have: the mark of a machine in which nothing can be timed."""


def guest_record() -> str | None:
    """The record of the guest that this process runs in, as of --machine; None: it is in none."""
    with suppress(FileNotFoundError):
        return (STATE / "machine").read_text("utf-8")
    return None


def refuse_in_guest(tried: str) -> None:
    """Raise HardwareAbsentError in a guest, where no time can be measured."""
    if (record := guest_record()) is not None:
        raise HardwareAbsentError(
            tried,
            f"this is the machine '{record}' in QEMU, whose times mean nothing",
            f"'headrace sim run SCENARIO --machine {record}' predicts times",
        )
