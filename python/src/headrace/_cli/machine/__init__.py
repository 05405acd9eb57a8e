# SPDX-License-Identifier: Apache-2.0
"""``headrace machine``: run programs on the machine of a record, in QEMU."""

from headrace._cli._app import Group

command = Group(
    "machine",
    """Run programs on the machine of a record, in QEMU.

    Example: headrace machine run xeon-max-flat -- numactl --hardware
    """,
    __name__,
    {
        "list": "Show the sample machines.",
        "run": "Run CMD on the machine of a record, booted in QEMU.",
        "show": "Show what would be booted for a record, and what is scaled down.",
    },
)
