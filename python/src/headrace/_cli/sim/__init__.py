# SPDX-License-Identifier: Apache-2.0
"""``headrace sim``: predictions for machines described by a file."""

from headrace._cli._app import Group

command = Group(
    "sim",
    """Predict times on machines described in a file, and compare with published figures.

    Example: headrace sim run submission --machine spr-1dsa
    """,
    __name__,
    {
        "advise": "Say which memory to read from, which mover to use, and the gain to expect.",
        "list": "List the scenarios with their parameters, and the machines.",
        "replay": "Predict the time of a traced program on other machines.",
        "run": "Simulate a scenario.",
        "validate": "Compare simulated figures with published ones.",
    },
    laboratory=("advise", "validate"),
)
