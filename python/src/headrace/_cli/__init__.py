# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``: common parts of all subcommands.

Exit codes: 0 ok, 1 failed, 2 usage, 3 hardware absent, 128 plus the number of a signal.
"""

import json
import os
from pathlib import Path

import click

from headrace._apps.machine import guest_record
from headrace._cli._app import Group
from headrace._cli._output import EXIT_FAILED, EXIT_HARDWARE_ABSENT, EXIT_OK, EXIT_USAGE, complain
from headrace._extras import missing_package
from headrace.errors import Error, HardwareAbsentError, InvalidArgumentError

SUMMARIES = {
    "topo": "Show the memory nodes of this machine, their tiers and distances, and the movers.",
    "doctor": "Check whether DSA can be used here; if not, show the cause and the remedy.",
    "dsa": "Show how the DSA devices are configured, or configure them.",
    "query": "Run TPC-H query 6 with prefetching and compare it with DuckDB.",
    "sql": "Run SQL queries with prefetching and compare them with DuckDB.",
    "emulate": "Run CMD on emulated Intel DSA devices, as root or as any user.",
    "run": "Run CMD with its copies, fills and comparisons tuned to this machine.",
    "tune": "Find the fastest copy for each length on this machine and save it as a profile.",
    "sim": "Predict times on machines described in a file, and compare with published figures.",
    "machine": "Run programs on the machine of a record, in QEMU.",
    "top": "Show what engines, DSA queues and caches of running processes do.",
    "bench": "Measure this machine's movers, and how fast the parts of Headrace are on it.",
    "report": "Measure this machine and write one page about it.",
    "store": "Serve a store to the processes of this host; check, copy and resize files of stores.",
    "pmem": "Use rings in persistent memory, and check that they survive a crash.",
}

_EXIT_CODES = ((HardwareAbsentError, EXIT_HARDWARE_ABSENT), (InvalidArgumentError, EXIT_USAGE))
_RENAMED = {
    "--engine": "--path",
    "--out": "--output",
    "--repeat": "--rounds",
    "--seconds": "--time",
}
_GONE = {
    "--apply": " is gone: run the commands that it prints",
    "--layout": ": every ring has checksums now; leave the option out",
}

_TIMED = ("bench", "query", "sql")

app = Group(
    "headrace",
    """Asynchronous memory copies, and a cache near the readers.

    Example: headrace query --scale-factor 1 --prefetch auto
    """,
    __name__,
    SUMMARIES,
    laboratory=("bench", "query", "report", "sql"),
)


@click.pass_context
def _root(context: click.Context, *, version: bool) -> None:
    if version:
        from headrace import __version__  # noqa: PLC0415 - Only this needs the extension.

        click.echo(f"headrace {__version__}")
        context.exit()
    if context.invoked_subcommand is None:
        from headrace._cli._first import show  # noqa: PLC0415 - Only this needs the machine.

        show()
    if context.invoked_subcommand in _TIMED and (record := guest_record()) is not None:
        from headrace._samples import machine_path  # noqa: PLC0415 - As above.

        complain(
            f"this is the machine '{record}' in QEMU, whose times mean nothing; what is called "
            "simulated is predicted for it"
        )
        if "model" in json.loads(Path(machine_path(record)).read_text("utf-8")):
            context.default_map = {name: {"simulate": record} for name in ("query", "sql")}


app.callback = _root
app.params = [click.Option(["--version"], is_flag=True, help="Print the version.")]
app.context_settings = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}


def run_command_line() -> int:
    """Run the command line, return its exit code; print Headrace's errors as one sentence."""
    try:
        code = app(prog_name="headrace", standalone_mode=False)
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption) and (name := _RENAMED.get(error.option_name)):
            error = click.UsageError(f"{error.option_name} is {name} now", error.ctx)
        elif isinstance(error, click.NoSuchOption) and (why := _GONE.get(error.option_name)):
            error = click.UsageError(f"{error.option_name}{why}", error.ctx)
        complain(f"{_sentence(error)}; see '{_path(error)} --help'")
        return EXIT_USAGE
    except SystemExit as ended:  # Of the completion, or EndedBySignalError.
        return int(ended.code or EXIT_OK)
    except (BrokenPipeError, click.Abort):
        return EXIT_FAILED
    except (Error, ModuleNotFoundError) as problem:
        if isinstance(problem, ModuleNotFoundError):
            problem = missing_package("run this command", problem)
        complain(problem)
        return next((code for kind, code in _EXIT_CODES if isinstance(problem, kind)), EXIT_FAILED)
    except OSError as problem:
        name = f" '{os.fsdecode(problem.filename)}'" if problem.filename is not None else ""
        complain(f"cannot use{name or ' a file'}: {os.strerror(problem.errno or 0)}")
        code = EXIT_FAILED
    except UnicodeEncodeError as problem:
        complain(f"cannot use '{problem.object}': it is not UTF-8, which is needed here; rename it")
        code = EXIT_FAILED
    return code if isinstance(code, int) else EXIT_OK


def _sentence(error: click.UsageError) -> str:
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        name = error.param_hint
        if name is None and error.param is not None:
            name = error.param.opts[-1] if error.param.opts[0][0] == "-" else error.param.metavar
        return f"{name}: {error.message}"
    return error.format_message().rstrip(".")


def _path(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx is not None else "headrace"
