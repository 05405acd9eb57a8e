# SPDX-License-Identifier: Apache-2.0
"""``headrace emulate``: run a program on emulated DSA devices.

This is the front only: the work is done by the program ``headrace-emulator``, which takes the place
of this process, so that nothing stands between the caller and the command's exit code and signals.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from headrace._cli._output import WrongUseError
from headrace._direct import built
from headrace._signals import as_we_found_them
from headrace.errors import NotFoundError

PROGRAM_NAME = "headrace-emulator"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("emulate", context_settings={"allow_interspersed_args": False})(emulate)


def program_path() -> Path:
    """Where the emulator of this package is.

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


# Every value goes on as it is: the program judges it, and says what is wrong, in one place.
def emulate(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="CMD", help="What to run, after '--', and its arguments.", show_default=False
        ),
    ],
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Devices, 1 to 16; if not given, 1 or as many as the file of --config has.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Devices, groups and WQs as 'accel-config save-config' writes them; "
            "WQs of type user are enabled.",
        ),
    ] = None,
    wq: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="shared, dedicated or both: one WQ of each on every device; both if not given.",
        ),
    ] = None,
    wq_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="WQs are named NAME0, NAME1, ...; headrace if not given. A name that begins "
            "with 'dpdk_' goes to dedicated WQs only: DPDK takes every WQ of that name for one.",
        ),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(metavar="N", help="Engines of each device, 1 to 4; 4 if not given."),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="S",
            help="One thing after the other, in an order that S decides; without it engines are "
            "threads.",
        ),
    ] = None,
    faults: Annotated[
        str | None, typer.Option(metavar="FILE", help="Faults on demand, a script in TOML.")
    ] = None,
    pace: Annotated[
        str | None,
        typer.Option(
            metavar="LATENCY,RATE",
            help="Completions delayed to a model, for example 2us,30GB/s; as fast as it goes if "
            "not given. Not with --seed.",
        ),
    ] = None,
    stats: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write what the devices did, as JSON, at the end."),
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every event, a line of JSON each.")
    ] = None,
    refuse_mmap: Annotated[
        bool,
        typer.Option("--refuse-mmap", help="Portals cannot be mapped: programs have to write()."),
    ] = False,
    force_access_trap: Annotated[
        bool,
        typer.Option(
            "--force-access-trap",
            help="Catch the access to the portal and not the instruction, as on processors that "
            "have MOVDIR64B.",
        ),
    ] = False,
) -> None:
    """Run CMD on emulated Intel DSA devices, as root or as any user, and leave nothing behind.

    CMD sees /dev/dsa, /sys/bus/dsa and the driver as on a machine that has the devices; its exit
    code, signals, stdin and stdout pass through. The emulation ends with CMD: what CMD left running
    is ended, too. CMD must be dynamically linked. What this machine lacks for it is said before CMD
    starts.

    Example: headrace emulate --wq shared --stats stats.json -- accel-config list
    """
    values = {
        "--devices": devices,
        "--config": config,
        "--wq": wq,
        "--wq-name": wq_name,
        "--engines": engines,
        "--seed": seed,
        "--faults": faults,
        "--pace": pace,
        "--stats": stats,
        "--trace": trace,
    }
    words = [str(program_path())]
    for option, value in values.items():
        if value is not None:
            words += [option, value]
    words += ["--refuse-mmap"] * refuse_mmap + ["--force-access-trap"] * force_access_trap
    if not command or not command[0]:
        raise WrongUseError("emulate", "there is no command to run; give it after '--'")
    as_we_found_them()
    os.execv(words[0], [*words, "--", *command])  # noqa: S606 - It is our own program.
