# SPDX-License-Identifier: Apache-2.0
"""``headrace emulate``: run a program on emulated DSA devices.

This process execs the program ``headrace-emulator``, which does the work, so that exit code and
signals of the command pass directly. Its help is the one table of the options.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace._cli._app import Command
from headrace._cli._options import command_argument, refuse
from headrace._direct import built
from headrace._signals import as_we_found_them
from headrace.errors import NotFoundError

PROGRAM_NAME = "headrace-emulator"
_ROW = re.compile(r"^  (--\S+)(?: (\S+))? +(.*(?:\n {10,}.*)*)", re.MULTILINE)
"""An option in the help of the program: name, placeholder, text."""
_MORE = {"--pace": "; or a machine of 'headrace sim list'"}


def program_path() -> Path:
    path = built(f"_emulator/{PROGRAM_NAME}")
    if path is not None:
        return path
    raise NotFoundError(
        "start the emulator",
        f"'{PROGRAM_NAME}' is not in the package",
        "reinstall the package, with libfuse3-dev and libtomlplusplus-dev",
    )


def _options(function: Callable[..., None]) -> Callable[..., None]:
    if (program := built(f"_emulator/{PROGRAM_NAME}")) is None:
        return function
    told = subprocess.run(  # noqa: S603 - It is our own program.
        [program, "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name, metavar, text in reversed(_ROW.findall(told)):
        says = " ".join(text.split()) + _MORE.get(name, "")
        function = click.option(name, metavar=metavar or None, is_flag=not metavar, help=says)(
            function
        )
    return function


@click.command("emulate", cls=Command, context_settings={"allow_interspersed_args": False})
@command_argument
@_options
def command(words: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - Texts and flags.
    """Run CMD on emulated Intel DSA devices, as root or as any user, and leave nothing behind.

    CMD sees /dev/dsa, /sys/bus/dsa and the driver as on a machine that has the devices; its exit
    code, signals, stdin and stdout pass through. The emulation ends with CMD: what CMD left running
    is ended, too. CMD must be dynamically linked. If something is missing on this machine, the
    command says so before CMD starts.

    Example: headrace emulate --wq shared --stats stats.json -- accel-config list
    """
    if not words or not words[0]:
        refuse("there is no command to run; give it after '--'")
    passed = [str(program_path())]
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        if value is True:
            passed.append(name)
        elif value not in (None, False):
            passed += [name, _pace(value) if key == "pace" else value]
    as_we_found_them()
    os.execv(passed[0], [*passed, "--", *words])  # noqa: S606 - It is our own program.


def _pace(text: str) -> str:
    """Convert the name of a machine to a pace; pass other values on to the emulator."""
    from headrace._scenarios import machines, pace_of  # noqa: PLC0415 - Few runs need it.

    return pace_of(text) if "," not in text and text in machines() else text
