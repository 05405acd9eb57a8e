# SPDX-License-Identifier: Apache-2.0
"""``headrace dsa``: show and make configurations of DSA devices."""

from headrace._cli._app import Group
from headrace._facts import Facts, load_record
from headrace._gather import gather
from headrace._samples import machine_path

command = Group(
    "dsa",
    """Show how the DSA devices are configured, or configure them.

    Example: headrace dsa configure --preset shared --output dsa.json
    """,
    __name__,
    {
        "list": "Show every device with its groups, engines and WQs, also those that are off.",
        "configure": "Make a configuration that accel-config loads, and say what it would change.",
    },
)


def facts_of(replay: str | None) -> tuple[Facts, str]:
    """The facts of this machine or of a record, and their origin."""
    return (gather(), "this machine") if replay is None else load_record(machine_path(replay))
