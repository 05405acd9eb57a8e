# SPDX-License-Identifier: Apache-2.0
"""``headrace tune``: find the best copy for this machine and save it as a profile."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from headrace import _core
from headrace._apps.machine import refuse_in_guest
from headrace._apps.tune import door, tuner
from headrace._apps.tune.dsa import finding_of, measure_paths
from headrace._apps.tune.kernels import tune_kernels
from headrace._apps.tune.search import StoppedError
from headrace._apps.tune.table import load_profile, table_of
from headrace._cli import _options, _tune_report
from headrace._cli._app import Command
from headrace._cli._output import complain, print_document, progress
from headrace._cli.run import has_queue, library_for, library_path
from headrace._files import Output
from headrace._signals import noticed
from headrace._temporary import temporary_folder
from headrace.errors import CapacityExceededError, Error
from headrace.machine import Machine, topo

SECONDS_MAX = 86_400


@click.command("tune", cls=Command)
@_options.option(
    "--output",
    type=_options.FilePath(),
    help="Where to write the profile; if not given, where it is searched for: "
    "$HEADRACE_PROFILE, else ~/.config/headrace/copy.json.",
)
@_options.option(
    "--time",
    type=_options.Duration(1, SECONDS_MAX),
    default=f"{tuner.SECONDS:g}s",
    help="Time for the search, without the steps before (memory) and after it "
    "(confirming the choices).",
)
@_options.option(
    "--bytes-min",
    type=_options.Size(tuner.BYTES_MIN, tuner.BYTES_MAX),
    default="64",
    help="Upper bound of the smallest size class.",
)
@_options.option(
    "--bytes-max",
    type=_options.Size(tuner.BYTES_MIN, tuner.BYTES_MAX),
    default="64MiB",
    help="Upper bound of the largest size class.",
)
@_options.flag(
    "--table",
    help="Measure nothing: print what the profile of --output has for each length from 64 bytes "
    "to 64 MiB, beside Asterope's (PLOS 2021) on a Xeon.",
)
@_options.threads_option("Threads that copy at the same time, beside one alone")
@_options.json_option
def command(
    output: str | None,
    time: float,
    bytes_min: int,
    bytes_max: int,
    threads: int | None,
    *,
    table: bool,
    as_json: bool,
) -> None:
    """Find the fastest copy for each length on this machine and save it as a profile.

    For each length, copies of many kinds take turns with the C library's memmove: hot and cold,
    aligned and not, with one thread and all. What is faster on the whole and slower nowhere is
    chosen; else memmove stays. Fills and comparisons are tuned the same way. At the end an ordinary
    program runs with the choices and without, and those that it loses by are dropped. Where there
    is a DSA, the length from which it helps is measured too.
    Ctrl-C ends the search and keeps what is known.

    Example: headrace tune --output copy.json

    Example: headrace tune --table --json
    """
    if table:
        _show_table(_profile_path(output), as_json=as_json)
        return
    refuse_in_guest("tune copies")
    if bytes_min > bytes_max:
        _options.refuse_value("--bytes-min", "it is more than --bytes-max")
    thread_count = threads or len(os.sched_getaffinity(0))
    settings = tuner.Settings(time, bytes_min, bytes_max, thread_count)
    profile = tuner.open_profile(_profile_path(output))
    _options.refuse_two_on_stdout("--output", profile, as_json=as_json)
    tuning = tuner.Tuning()
    others = tuner.OtherWork()
    with noticed() as noticed_signal:

        def check_stop() -> None:
            if noticed_signal():
                raise StoppedError

        with progress("tuning copies") as share:
            tuner.Tuner(settings, check_stop).run(tuning, share)
        if not tuning.stopped:
            _tune_kernels(tuning, settings, check_stop)
        if not tuning.choices:
            complain("stopped before anything was known: no profile was written")
            return
        if not tuning.stopped:
            _judge_in_program(tuning, settings)
        tuning.others_share = others.share()
        machine = topo()
        _save(profile, tuning, settings, machine, check_stop)
        if as_json:
            made = json.loads(tuner.profile_of(tuning))
            print_document(
                "tune",
                machine=machine.document,
                results=_tune_report.results_of(tuning, settings, made, profile.path),
                summary=_tune_report.summary_of(made),
            )
        elif not profile.is_stdout:
            _tune_report.print_report(tuning, Path(profile.path))
        _warn_if_busy(tuning.others_share or 0)


def _warn_if_busy(share: float) -> None:
    if share > tuner.OTHERS_SHARE_MAX:
        complain(
            f"other processes used {share:.0%} of the processors meanwhile: what was chosen may be "
            "chance; tune again when the machine is idle"
        )


def _save(
    profile: Output,
    tuning: tuner.Tuning,
    settings: tuner.Settings,
    machine: Machine,
    check_stop: Callable[[], None],
) -> None:
    """Write the profile; with a DSA, both before and after measuring the device."""
    if profile.is_replaced:
        tuner.save_profile(profile, tuner.profile_of(tuning))
    has_dsa = has_queue(machine, "shared") and not tuning.stopped
    if has_dsa:
        _measure_dsa(tuning, settings, check_stop)
    if has_dsa or not profile.is_replaced:
        tuner.save_profile(profile, tuner.profile_of(tuning))


def _tune_kernels(
    tuning: tuner.Tuning, settings: tuner.Settings, check_stop: Callable[[], None]
) -> None:
    try:
        with progress("tuning fills and comparisons") as share:
            tuning.kernels = tune_kernels(settings.classes, settings.seed, check_stop, share)
    except StoppedError:
        tuning.stopped = True
    except CapacityExceededError as problem:
        # The copies are tuned by now; keep them.
        complain(f"fills and comparisons stay the C library's: {problem}")


def _judge_in_program(tuning: tuner.Tuning, settings: tuner.Settings) -> None:
    """Run a program with the profile and without, and drop the classes that it loses by."""
    adopted = tuner.functions_of(tuning)
    if not adopted:
        return
    try:
        with (
            _profile_beside(tuner.profile_of(tuning)) as path,
            progress("judging the choices in a program") as share,
        ):
            program = door.measure(
                door.ways_of(library_for(str(path)), str(path)),
                tuner.DOOR_ROUNDS,
                share,
                bytes_max=settings.bytes_max,
                functions=adopted,
            )
    except Error as problem:
        # Without the preload, no program gets these copies either.
        complain(f"the choices are not judged in a program: {problem}")
        return
    tuner.judge_in_program(tuning, program)


def _measure_dsa(
    tuning: tuner.Tuning, settings: tuner.Settings, check_stop: Callable[[], None]
) -> None:
    """Find the length from which DSA pays, compared with the chosen copies."""
    try:
        library = library_path()
    except Error:
        return
    with (
        suppress(StoppedError),
        _profile_beside(tuner.profile_of(tuning)) as path,
        progress("sharing copies with DSA") as share,
    ):

        def tell(part: float) -> None:
            share(part)
            check_stop()

        tuning.dsa = finding_of(measure_paths(library, path, settings.bytes_max, tell))
    tuning.stopped = tuning.dsa is None


@contextmanager
def _profile_beside(text: str) -> Iterator[Path]:
    """Provide a profile in a temporary file, for measuring processes."""
    with temporary_folder("headrace-tune-") as folder:
        path = folder / "profile.json"
        path.write_text(text, encoding="utf-8")
        yield path


def _profile_path(text: str | None) -> Path:
    if not (path := _core.default_copy_profile_path() if text is None else text):
        _options.refuse_value("--output", "there is no directory for profiles here; name a file")
    return Path(path)


def _show_table(path: Path, *, as_json: bool) -> None:
    profile = load_profile(path)
    rows = table_of(profile["classes"])
    if as_json:
        print_document(
            "tune",
            machine=topo().document,
            results={"profile": str(path), "table": rows},
            summary=_tune_report.summary_of(profile),
        )
    else:
        _tune_report.print_table(rows, path)
