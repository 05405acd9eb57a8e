# SPDX-License-Identifier: Apache-2.0
"""``headrace run``: run an unmodified program with tuned copies.

A preloaded library does the work. Without ``--stats`` this process execs the program; with it, it
execs ``headrace-run``, which waits for the program and writes the counters.
"""

import fcntl
import json
import os
from pathlib import Path

import click

from headrace import _core, _direct
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import complain
from headrace._files import STDOUT
from headrace._signals import as_we_found_them
from headrace.errors import (
    HardwareAbsentError,
    InvalidArgumentError,
    IoFailedError,
    NotFoundError,
    UnsupportedError,
)
from headrace.machine import Machine, topo


def library_path(name: str = _direct.PRELOAD) -> Path:
    path = _direct.built(name) or _direct.built(_direct.PRELOAD)
    if path is None:
        raise NotFoundError(
            "run a program with tuned copies",
            f"'{name}' is not in the package",
            "reinstall the package, on x86-64 and with vector code",
        )
    if any(each in str(path) for each in ": "):
        raise UnsupportedError(
            "run a program with tuned copies",
            f"the path '{path}' has a colon or a space in it, which separate paths in LD_PRELOAD",
            "install the package elsewhere",
        )
    return path


def library_for(profile: str | None) -> Path:
    """Return the path of the library to preload with a profile; None is the user's."""
    named = {} if profile is None else {"HEADRACE_PROFILE": profile}
    return library_path(_direct.preload_name(os.environ | named))


def has_queue(machine: Machine, *modes: str) -> bool:
    """Whether there is a DSA work queue of one of these modes that can take part in copies."""
    return any(
        queue.mode in modes and (queue.state, queue.type) == ("enabled", "user")
        for device in machine.dsa_devices
        for queue in device.queues
    )


@click.command("run", cls=Command, context_settings={"allow_interspersed_args": False})
@_options.command_argument
@_options.profile_option
@_options.option(
    "--path",
    type=_options.Choice("auto", "cpu", "dsa"),
    help="Which mover makes long copies: cpu; dsa, together with the processor; or auto, which "
    "takes DSA where the profile says that it pays; auto if not given.",
)
@_options.option(
    "--min-bytes",
    type=_options.Size(),
    help="Leave shorter copies to the C library; if not given, those that the profile has nothing "
    "for. With --path dsa, DSA takes part in all others, from 64KiB on if not given.",
)
@_options.flag(
    "--probe",
    help="Let long copies detect whether their bytes come from memory, and bypass the caches then, "
    "where the profile says so. Kills programs that disable the time-stamp counter.",
)
@_options.flag(
    "--into-cache",
    help="DSA writes what it copies and fills into the last-level cache of the processor, for "
    "programs that read it at once; without, into memory.",
)
@_options.option(
    "--stats",
    type=_options.FilePath(),
    help="Write what was moved, filled and compared, by which mover and how fast, as JSON; - is "
    "stdout. Counting costs time.",
)
def command(
    words: tuple[str, ...],
    profile: str | None,
    path: str | None,
    min_bytes: int | None,
    stats: str | None,
    *,
    probe: bool,
    into_cache: bool,
) -> int:
    """Run CMD with its copies, fills and comparisons tuned to this machine, without rebuilding it.

    Long ones go to DSA where there is one and --path says so.

    The exit code, signals, stdin, stdout and stderr are CMD's own, and so are those of all that it
    starts. What cannot be tuned is left to the C library without a message; --stats says why.

    Example: headrace run --stats stats.json -- cp big copy
    """
    if not words or not words[0]:
        _options.refuse("there is no command to run; give it after '--'")
    environment = _direct.environment_given()
    if path is not None:
        _check_path(path)
        environment["HEADRACE_PATH"] = path
    if min_bytes is not None:
        environment["HEADRACE_MIN_BYTES"] = str(min_bytes)
    if profile is not None:
        environment["HEADRACE_PROFILE"] = _checked_profile(profile)
    if probe:
        environment["HEADRACE_PROBE"] = "1"
    if into_cache:
        environment["HEADRACE_INTO_CACHE"] = "1"
    library = library_path(_direct.preload_name(environment) if stats is None else _direct.PRELOAD)
    environment["LD_PRELOAD"] = _direct.preload_variable(
        str(library), environment.get("LD_PRELOAD", "")
    )
    started = list(words) if stats is None else _counted_words(stats, words)
    as_we_found_them()
    try:
        os.execvpe(started[0], started, environment)  # noqa: S606 - The user's command.
    except OSError as problem:
        sentence, code = _direct.cannot_run(started[0], problem)
        complain(sentence)
        return code


def _check_path(text: str) -> None:
    if text == "dsa" and not has_queue(topo(), "shared", "dedicated"):
        raise HardwareAbsentError(
            "run a program with copies by DSA",
            "there is no work queue that is enabled and of type user",
            "'headrace doctor' shows why; --path auto or cpu copies by the processor",
        )


def _checked_profile(text: str) -> str:
    """The path of a usable profile; a bad one is refused before CMD runs."""
    if text == "none":
        return text
    path = str(Path(text).absolute())
    _core.use_copy_profile_file(path)
    _core.use_no_copy_profile()
    return path


def _counted_words(text: str, words: tuple[str, ...]) -> list[str]:
    """The command line that runs CMD and writes its statistics."""
    tried = f"write the statistics '{text}'"
    path = text
    if text != STDOUT:
        # Not by Path, whose queries raise if a directory may not be searched.
        path = os.path.abspath(text)  # noqa: PTH100
        if os.path.isdir(path):  # noqa: PTH112
            raise InvalidArgumentError(tried, "it is a directory", "name a file by --stats")
        is_special = os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113
        target = path if is_special else os.path.dirname(os.path.realpath(path))  # noqa: PTH120
        if not os.access(target, os.W_OK, effective_ids=True):
            raise IoFailedError(tried, "it cannot be written", "name another file by --stats")
    program = _direct.built("headrace-run")
    if program is None:
        raise NotFoundError(
            tried, "'headrace-run' is not in the package", "reinstall the package, on x86-64"
        )
    # Numbers from 3 on: closed standard descriptors would be reused.
    record = os.memfd_create("headrace-machine")
    machine = fcntl.fcntl(record, fcntl.F_DUPFD, 3)
    os.write(machine, json.dumps(topo().document).encode())
    return [str(program), path, str(machine), *words]
