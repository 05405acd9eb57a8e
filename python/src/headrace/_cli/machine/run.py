# SPDX-License-Identifier: Apache-2.0
"""``headrace machine run``: run a program on the machine of a record."""

import json
import os
import shutil
from pathlib import Path

import click

from headrace._apps.machine import STATE
from headrace._apps.machine.guest import GuestError, Job, run_guest
from headrace._apps.machine.hardware import hardware_of
from headrace._cli._app import Command
from headrace._cli._options import Duration, FilePath, Size, option, refuse
from headrace._cli._output import complain
from headrace._cli.emulate import program_path
from headrace._direct import cannot_run, environment_given
from headrace._samples import machine_path
from headrace.errors import InvalidArgumentError
from headrace.machine import replay

memory_option = option(
    "--memory",
    type=Size(64 << 20),
    help="Memory of all nodes, shared in proportion to the record's; 4GiB if not given.",
)


@click.command("run", cls=Command)
@click.argument("record", metavar="RECORD")
@click.argument("words", metavar="CMD...", nargs=-1)
@memory_option
@option(
    "--devices",
    type=FilePath("FILE|none"),
    help="DSA devices of this file of 'accel-config save-config', with their numa_node, or none; "
    "those of the record if not given.",
)
@option(
    "--write",
    type=FilePath("DIR"),
    multiple=True,
    help="A folder whose changes come back, as those of the working folder do; repeatable.",
)
@option(
    "--pmem",
    type=FilePath("DIR"),
    help="Keep the contents of persistent memory in this folder, for the next run.",
)
@option("--timeout", type=Duration(1, 86_400), help="End the machine after this time.")
def command(
    record: str,
    words: tuple[str, ...],
    memory: int | None,
    devices: str | None,
    write: tuple[str, ...],
    pmem: str | None,
    timeout: float | None,
) -> int:
    """Run CMD on the machine of a record, booted in QEMU.

    The machine has the record's nodes with their distances, bandwidths and latencies, its DSA
    devices by the emulator, and its persistent memory as file systems with DAX at /mnt/pmemN; its
    memory is scaled down. CMD finds the files of this system. What it writes is gone with the
    machine, but for the working folder and those of --write. Streams, signals and the exit code are
    those of CMD; it runs as root, without a network. All memory is equally fast: time nothing.

    The kernel is this system's, or of an unpacked package in $HEADRACE_KERNEL.
    Exit codes of the machine's own: 3 without QEMU or a kernel, 124 after --timeout, 125 if it
    died, 126 and 127 if CMD cannot be run.

    Example: headrace machine run xeon-max-flat -- numactl --hardware
    """
    if not words or not words[0]:
        refuse("there is no command to run; give it after '--'")
    path = machine_path(record)
    machine = replay(path)
    folder = None if pmem is None else _folder(pmem, "--pmem")
    hardware = hardware_of(machine, record, memory, folder)
    program = shutil.which(words[0])
    if program is None:
        problem: OSError = (
            PermissionError(13, "") if Path(words[0]).exists() else FileNotFoundError()
        )
        sentence, code = cannot_run(words[0], problem)
        complain(sentence)
        return code
    words = (program, *words[1:])  # A path: the guest's Busybox has programs of the same names.
    configuration = json.dumps(hardware.devices) if hardware.devices else ""
    if devices is not None:
        configuration = "" if devices == "none" else Path(devices).read_text("utf-8")
    if configuration:
        words = (str(program_path()), "--config", f"{STATE}/devices", "--", *words)
    folders = [Path.cwd(), *(_folder(text, "--write") for text in write)]
    if str(folders[0]) == "/":
        refuse("the working folder is the root: change to another one, whose changes come back")
    job = Job(words, environment_given(), folders, timeout)
    try:
        name = record if path != record else os.path.abspath(path)  # noqa: PTH100 - As a text.
        files = {"devices": configuration, "machine": name}
        return run_guest(hardware, files, job)
    except GuestError as error:
        complain(error)
        return error.exit_code


def _folder(text: str, name: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise InvalidArgumentError(
            f"use '{text}' as {name}", "it is not a folder that you may write", "make it first"
        )
    return path
