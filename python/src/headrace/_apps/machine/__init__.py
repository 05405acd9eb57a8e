# SPDX-License-Identifier: Apache-2.0
"""Machines in QEMU: the nodes, devices and persistent memory of a record, with this system in it.

`hardware` converts a machine to arguments of QEMU, `kernel` finds what boots, `image` packs it, and
`guest` runs one command. `init.sh` is the guest's side. Memory of all nodes is equally fast, so
nothing can be timed in a guest.
"""

from pathlib import Path

STATE = Path("/run/headrace-machine")
"""A folder that only guests have: the mark of a machine in which nothing can be timed."""
