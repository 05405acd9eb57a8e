# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem``: rings in persistent memory, and their crash check."""

from headrace._cli._app import Group

command = Group(
    "pmem",
    """Use rings in persistent memory, and check that they survive a crash.

    Example: headrace pmem check --variant optimised
    """,
    __name__,
    {
        "check": "Check that a ring recovers from the states that a crash can leave.",
        "ring": "Make and inspect rings in files; programs fill and empty them.",
    },
)
