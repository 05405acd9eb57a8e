# SPDX-License-Identifier: Apache-2.0
"""``headrace top``: statistics of running processes."""

import http.server
import io
import time
from collections.abc import Callable, Sequence

import click

from headrace import _core
from headrace._apps.top import Line, Look, Watch, hit_rate, prometheus_text
from headrace._cli._app import Command
from headrace._cli._options import Count, Duration, FilePath, flag, json_option, option, refuse
from headrace._cli._output import EXIT_FAILED, EXIT_OK, live_stdout, print_document
from headrace._cli._report import Column, Report, figures
from headrace.errors import CapacityExceededError, PermissionDeniedError
from headrace.store import Store
from headrace.telemetry import DIRECTORY

_HOW = (
    "No process publishes statistics. Set HEADRACE_TELEMETRY=1 in the environment of a program "
    "that uses Headrace, or call headrace.publish_statistics() in it."
)


@click.command("top", cls=Command)
@flag("--once", help="Print one view and end.")
@json_option
@option(
    "--interval",
    type=Duration(0.01, 3600),
    default="1s",
    help="Time between two samples; rates are over it.",
)
@option(
    "--prometheus",
    type=Count(0, 65535, metavar="PORT"),
    help="Serve the values for Prometheus at this port of 127.0.0.1; 0 takes any free port.",
)
@option("--store", type=FilePath(), multiple=True, help="Also show the store at this socket.")
def command(
    interval: float, prometheus: int | None, store: Sequence[str], *, once: bool, as_json: bool
) -> int:
    """Show what engines, DSA queues and caches of running processes do.

    Processes publish nothing unless HEADRACE_TELEMETRY=1 is in their environment or they call
    headrace.publish_statistics(). Shows those of this user; as root, of all users. Devices of
    'headrace emulate' are shown for all processes. Ctrl-C ends it.

    Example: headrace top --once --json
    """
    if as_json and not once:
        refuse("--json is one document; add --once")
    if prometheus is not None and once:
        refuse("--prometheus serves until it is ended; leave --once out")
    enter = click.get_current_context().with_resource
    watch = Watch(DIRECTORY, {each: enter(Store.connect(each)) for each in store})
    try:
        if prometheus is not None:
            return _serve(watch, prometheus)
        if not once:
            return _show(watch, interval)
    except BrokenPipeError:  # The reader exited.
        return EXIT_FAILED
    return _print_once(watch, interval, as_json=as_json)


def _print_once(watch: Watch, interval_s: float, *, as_json: bool) -> int:
    # Rates need two samples.
    watch.look()
    time.sleep(interval_s)
    look = watch.look()
    if as_json:
        _print_json(look)
    else:
        _print_look(Report(), look)
    return EXIT_OK


def _print_json(look: Look) -> None:
    by_process: dict[int, list[dict[str, object]]] = {}
    for line in look.lines:
        row: dict[str, object] = {
            "kind": line.kind,
            "name": line.name,
            "values": dict(line.values),
            "rates_per_s": dict(line.rates),
        }
        by_process.setdefault(line.process, []).append(row)
    print_document(
        "top",
        machine={},
        results={
            "time_ns": look.time_ns,
            "processes": [
                {**process, "rows": by_process.get(process["process"], [])}
                for process in look.processes
            ],
            "emulations": [
                {"process": process, "rows": by_process.get(process, [])}
                for process in look.emulations
            ],
            "stores": by_process.get(0, []),
            "unreadable": look.unreadable,
        },
        summary={
            "processes": len(look.processes),
            "engines": sum(line.kind == "engine" for line in look.lines),
            "devices": sum(line.kind == "device" for line in look.lines),
            "caches": sum(line.kind == "cache" for line in look.lines),
            "bytes_moved": _sum(look, "bytes_moved"),
            "bytes_by_device": _sum(look, "bytes_by_device"),
            "emulations": len(look.emulations),
            "unreadable": len(look.unreadable),
        },
    )


def _sum(look: Look, name: str) -> int:
    return sum(line.values.get(name, 0) for line in look.lines if line.kind == "engine")


def _print_look(report: Report, look: Look) -> None:
    count = len(look.processes)
    report.say("1 process publishes" if count == 1 else f"{count} processes publish", "bold")
    for file in look.unreadable:
        report.say(f"Not shown: {file['path']}: {file['error']}", "yellow")
    if not look.processes and not look.unreadable:
        report.say(_HOW)
    for kind, (title, columns) in _SECTIONS.items():
        lines = [line for line in look.lines if line.kind == kind]
        if lines:
            report.say()
            report.say(title, "bold")
            report.table(
                [
                    Column("process", right=True, key=True),
                    Column("program", optional=1),
                    Column("name", key=True),
                    *figures(*columns),
                ],
                [
                    [
                        str(line.process or "-"),
                        line.program,
                        line.name,
                        *(cell(line) for cell in columns.values()),
                    ]
                    for line in lines
                ],
            )


_Cell = Callable[[Line], str]


def _rate(name: str) -> _Cell:
    return lambda line: f"{line.rates[name]:,.0f}" if name in line.rates else "-"


def _bytes_rate(name: str) -> _Cell:
    return lambda line: f"{line.rates[name] / 1e9:.3f} GB/s" if name in line.rates else "-"


def _total(name: str) -> _Cell:
    return lambda line: f"{line.values.get(name, 0):,}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _by_device(line: Line) -> str:
    moved = line.values.get("bytes_moved", 0)
    return _percent(line.values.get("bytes_by_device", 0) / moved if moved else None)


_SECTIONS: dict[str, tuple[str, dict[str, _Cell]]] = {
    "engine": (
        "Engines",
        {
            "jobs/s": _rate("jobs_done"),
            "bytes/s": _bytes_rate("bytes_moved"),
            "by device": _by_device,
            "failed": _total("jobs_failed"),
            "fell back": _total("jobs_fell_back"),
        },
    ),
    "device": (
        "DSA queues",
        {
            "emulated": lambda line: "yes" if line.values.get("emulated") else "no",
            "descriptors/s": _rate("descriptors"),
            "retries/s": _rate("retries"),
            "faults/s": _rate("page_faults"),
            "errors": _total("errors"),
            "lost": _total("lost"),
        },
    ),
    "emulated device": (
        "Emulated devices",
        {
            "descriptors/s": _rate("descriptors"),
            "batches/s": _rate("batches"),
            "written/s": _bytes_rate("bytes_written"),
            "faults/s": _rate("page_faults"),
            "errors": _total("errors"),
        },
    ),
    "emulated wq": (
        "Their work queues",
        {
            "accepted/s": _rate("accepted"),
            "retried/s": _rate("retried"),
            "dropped": _total("dropped"),
            "aborted": _total("aborted"),
            "entries at most": _total("occupancy_max"),
        },
    ),
    "cache": (
        "Caches",
        {
            "hits/s": _rate("hits"),
            "misses/s": _rate("misses"),
            "hit rate": lambda line: _percent(hit_rate(line)),
            "cached": lambda line: _core.bytes_text(line.values.get("bytes_cached", 0)),
            "evictions/s": _rate("evictions"),
        },
    ),
    "store tier": (
        "Tiers of stores",
        {
            "blocks": _total("blocks"),
            "capacity": _total("capacity_blocks"),
            "hits/s": _rate("hits"),
            "puts/s": _rate("puts"),
            "evictions/s": _rate("evictions"),
        },
    ),
    "store client": (
        "Processes that use them",
        {
            "requests/s": _rate("requests"),
            "reads in place/s": _rate("reads_in_place"),
            "leases": _total("leases"),
            "pins": _total("pins"),
        },
    ),
}


def _show(watch: Watch, interval_s: float) -> int:
    """Redraw the view until a signal ends it."""
    stream = live_stdout()
    while True:
        text = io.StringIO()
        _print_look(Report(text, Report(stream).width), watch.look())
        if stream.isatty():
            # Move to the upper left corner and clear the screen below.
            stream.write("\x1b[H\x1b[J")
        stream.write(text.getvalue())
        stream.flush()
        time.sleep(interval_s)


def _serve(watch: Watch, port: int) -> int:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404, "the values are at /metrics")
                return
            body = prometheus_text(watch.look()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    tried = f"serve the values at port {port}"
    try:
        server = http.server.HTTPServer(("127.0.0.1", port), Handler)
    except PermissionError as error:
        raise PermissionDeniedError(tried, str(error), "use a port from 1024 on") from error
    except OSError as error:
        remedy = "use another port, or 0 for any that is free"
        raise CapacityExceededError(tried, str(error), remedy) from error
    stream = live_stdout()
    stream.write(f"http://127.0.0.1:{server.server_port}/metrics\n")
    stream.flush()
    with server:
        server.serve_forever()
    return EXIT_OK
