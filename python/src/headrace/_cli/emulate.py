# SPDX-License-Identifier: Apache-2.0
"""``headrace emulate``: run a program on emulated DSA devices.

This process execs the program ``headrace-emulator``, which does the work, so that exit code and
signals of the command pass directly.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace._cli._app import Command
from headrace._cli._options import flag, refuse
from headrace._direct import built
from headrace._signals import as_we_found_them
from headrace.errors import NotFoundError

PROGRAM_NAME = "headrace-emulator"


def program_path() -> Path:
    """Return the path of the package's emulator.

    Raises:
        NotFoundError: The package was built without it.
    """
    path = built(f"_emulator/{PROGRAM_NAME}")
    if path is not None:
        return path
    raise NotFoundError(
        "start the emulator",
        f"'{PROGRAM_NAME}' is not in the package",
        "reinstall the package, with libfuse3-dev and libtomlplusplus-dev",
    )


# Values are passed on unchanged: only the program validates them.
_PASSED = {
    "--devices": ("N", "Devices, 1 to 16; if not given, 1 or as many as the file of --config has."),
    "--config": (
        "FILE",
        (
            "Devices, groups and WQs as 'accel-config save-config' writes them; "
            "WQs of type user are enabled."
        ),
    ),
    "--wq": (
        "MODE",
        "shared, dedicated or both: one WQ of each on every device; both if not given.",
    ),
    "--wq-name": (
        "NAME",
        (
            "WQs are named NAME0, NAME1, ...; headrace if not given. A name that begins "
            "with 'dpdk_' goes to dedicated WQs only: DPDK takes every WQ with that prefix for one."
        ),
    ),
    "--engines": ("N", "Engines of each device, 1 to 4; 4 if not given."),
    "--seed": (
        "S",
        "Single-threaded, scheduled by seed S; without it engines are threads.",
    ),
    "--faults": ("FILE", "Inject the faults of this script in TOML."),
    "--pace": (
        "LATENCY,RATE",
        (
            "Completions delayed to a model, for example 2us,30GB/s, or a machine of "
            "'headrace sim list'; as fast as possible if not given. Not with --seed."
        ),
    ),
    "--stats": ("FILE", "Write what the devices did, as JSON, at the end; - is stdout."),
    "--trace": ("FILE", "Write every event, a line of JSON each; - is stdout."),
}
_FLAGS = {
    "--refuse-mmap": "Portals cannot be mapped: programs have to write().",
    "--force-access-trap": "Trap the access to the portal and not the instruction, as on "
    "processors that have MOVDIR64B.",
}


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for name, text in reversed(_FLAGS.items()):
        function = flag(name, help=text)(function)
    for name, (metavar, text) in reversed(_PASSED.items()):
        function = click.option(name, metavar=metavar, help=text)(function)
    return function


@click.command("emulate", cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="CMD...", nargs=-1)
@_options
def command(words: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - Texts and flags.
    """Run CMD on emulated Intel DSA devices, as root or as any user, and leave nothing behind.

    CMD sees /dev/dsa, /sys/bus/dsa and the driver as on a machine that has the devices; its exit
    code, signals, stdin and stdout pass through. The emulation ends with CMD: what CMD left running
    is ended, too. CMD must be dynamically linked. If something is missing on this machine, the
    command says so before CMD starts.

    Example: headrace emulate --wq shared --stats stats.json -- accel-config list
    """
    passed = [str(program_path())]
    for name in _PASSED:
        value = options[_key(name)]
        if value is not None:
            passed += [name, _pace(value) if name == "--pace" else value]
    passed += [name for name in _FLAGS if options[_key(name)]]
    if not words or not words[0]:
        refuse("there is no command to run; give it after '--'")
    as_we_found_them()
    os.execv(passed[0], [*passed, "--", *words])  # noqa: S606 - It is our own program.


def _pace(text: str) -> str:
    """Convert the name of a machine to a pace; pass other values on to the emulator."""
    from headrace._apps.sim import machines, pace_of  # noqa: PLC0415 - Few runs need it.

    return pace_of(text) if "," not in text and text in machines() else text


def _key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
