# SPDX-License-Identifier: Apache-2.0
"""The machine that a simulation is about."""

from pathlib import Path

from headrace._cli._options import Decorator, FilePath, option, refuse_value
from headrace._scenarios import find_machine
from headrace.errors import InvalidArgumentError, NotFoundError


def machine_option(otherwise: str) -> Decorator:
    """--machine; `otherwise` says what holds without it."""
    return option(
        "--machine",
        type=FilePath("MACHINE"),
        help="A machine of 'headrace sim list', or the path of a record with a model; "
        f"{otherwise}.",
    )


def machine_of(name: str, parameter: str = "--machine") -> Path:
    try:
        return find_machine(name)
    except (InvalidArgumentError, NotFoundError) as error:
        refuse_value(parameter, f"'{name}': {error.cause}; {error.remedy}")
