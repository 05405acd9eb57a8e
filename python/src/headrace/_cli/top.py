# SPDX-License-Identifier: Apache-2.0
"""``headrace top``: statistics of running processes."""

import csv
import http.server
import io
import sys
import time
from collections.abc import Callable, Mapping

import click

from headrace import _core
from headrace._apps.idxd_events import Counters
from headrace._apps.top import (
    Line,
    Look,
    Watch,
    hit_rate,
    prometheus_text,
    sparkline,
)
from headrace._cli._app import Command
from headrace._cli._options import Count, flag, json_option, option, refuse
from headrace._cli._output import EXIT_FAILED, EXIT_OK, live_stdout, print_document
from headrace._cli._report import Column, Report, figures
from headrace.errors import CapacityExceededError, PermissionDeniedError
from headrace.telemetry import DIRECTORY

_HOW = (
    "No process publishes statistics. Set HEADRACE_TELEMETRY=1 in the environment of a program "
    "that uses Headrace, or call headrace.publish_statistics() in it."
)
_HELD = 1000  # Milliseconds.


@click.command("top", cls=Command)
@flag("--once", help="Print one view and end.")
@json_option
@flag("--csv", "as_csv", help="Print a line of CSV for each value, again after each interval.")
@option(
    "--interval",
    type=Count(10, 3_600_000, "an hour", "MS"),
    default=str(_HELD),
    help="Milliseconds between two samples; rates are over that time.",
)
@option(
    "--prometheus",
    type=Count(0, 65535, metavar="PORT"),
    help="Serve the values for Prometheus at this port of 127.0.0.1; 0 takes any free port.",
)
def command(
    interval: int, prometheus: int | None, *, once: bool, as_json: bool, as_csv: bool
) -> int:
    """Show what engines, DSA queues and caches of running processes do.

    Processes publish nothing unless HEADRACE_TELEMETRY=1 is in their environment or they call
    headrace.publish_statistics(). Shows those of this user; as root, of all users. Devices of
    'headrace emulate' are shown for all processes. Ctrl-C ends it.

    Example: headrace top --once --json
    """
    if as_json and not once:
        refuse("--json is one document; add --once, or use --csv")
    if as_json and as_csv:
        refuse("--json and --csv are two formats; give one of them")
    if prometheus is not None and (once or as_csv):
        refuse("--prometheus serves until it is ended; it goes with neither --once nor --csv")
    with Counters() as counters:
        watch = Watch(DIRECTORY, counters)
        try:
            if prometheus is not None:
                return _serve(watch, prometheus)
            if as_csv:
                return _print_csv(watch, interval / 1000, once=once)
            if not once:
                return _show(watch, interval / 1000)
        except BrokenPipeError:  # The reader exited.
            return EXIT_FAILED
        return _print_once(watch, interval / 1000, as_json=as_json)


def _print_once(watch: Watch, interval_s: float, *, as_json: bool) -> int:
    # Rates need two samples.
    watch.look()
    time.sleep(interval_s)
    look = watch.look()
    if as_json:
        _print_json(look, watch.counters.state)
    else:
        _print_look(Report(), watch, look)
    return EXIT_OK


def _print_json(look: Look, idxd_events: str) -> None:
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
            "idxd_events": idxd_events,
            "idxd_devices": by_process.get(0, []),
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


def _print_csv(watch: Watch, interval_s: float, *, once: bool) -> int:
    stream = sys.stdout if once else live_stdout()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["time_ns", "process", "program", "kind", "name", "value", "number"])
    while True:
        look = watch.look()
        for line in look.lines:
            for name, value in line.values.items():
                where = (look.time_ns, line.process, line.program, line.kind, line.name)
                writer.writerow([*where, name, value])
        stream.flush()
        if once:
            return EXIT_OK
        time.sleep(interval_s)


def _print_look(report: Report, watch: Watch, look: Look) -> None:
    count = len(look.processes)
    report.say("1 process publishes" if count == 1 else f"{count} processes publish", "bold")
    for file in look.unreadable:
        report.say(f"Not shown: {file['path']}: {file['error']}", "yellow")
    if not look.processes and not look.unreadable:
        report.say(_HOW)
    report.say(f"Events of the driver: {watch.counters.state}", "dim")
    _table(
        report,
        "Engines",
        figures("jobs/s", "bytes/s", "by device", "failed", "fell back"),
        [line for line in look.lines if line.kind == "engine"],
        watch,
        lambda line: [
            _rate(line.rates, "jobs_done"),
            _bytes_rate(line.rates, "bytes_moved"),
            _share(line.values.get("bytes_by_device", 0), line.values.get("bytes_moved", 0)),
            f"{line.values.get('jobs_failed', 0):,}",
            f"{line.values.get('jobs_fell_back', 0):,}",
        ],
    )
    _table(
        report,
        "DSA queues",
        [Column("emulated"), *figures("descriptors/s", "retries/s", "faults/s", "errors", "lost")],
        [line for line in look.lines if line.kind == "device"],
        watch,
        lambda line: [
            "yes" if line.values.get("emulated") else "no",
            _rate(line.rates, "descriptors"),
            _rate(line.rates, "retries"),
            _rate(line.rates, "page_faults"),
            f"{line.values.get('errors', 0):,}",
            f"{line.values.get('lost', 0):,}",
        ],
    )
    _table(
        report,
        "Emulated devices",
        figures("descriptors/s", "batches/s", "written/s", "faults/s", "errors"),
        [line for line in look.lines if line.kind == "emulated device"],
        watch,
        lambda line: [
            _rate(line.rates, "descriptors"),
            _rate(line.rates, "batches"),
            _bytes_rate(line.rates, "bytes_written"),
            _rate(line.rates, "page_faults"),
            f"{line.values.get('errors', 0):,}",
        ],
    )
    _table(
        report,
        "Their work queues",
        figures("accepted/s", "retried/s", "dropped", "aborted", "entries at most"),
        [line for line in look.lines if line.kind == "emulated wq"],
        watch,
        lambda line: [
            _rate(line.rates, "accepted"),
            _rate(line.rates, "retried"),
            f"{line.values.get('dropped', 0):,}",
            f"{line.values.get('aborted', 0):,}",
            f"{line.values.get('occupancy_max', 0):,}",
        ],
    )
    _table(
        report,
        "DSA devices, counted by the driver for all processes",
        figures("read/s", "written/s", "shared/s", "dedicated/s"),
        [line for line in look.lines if line.kind == "idxd device"],
        watch,
        lambda line: [
            _bytes_rate(line.rates, "bytes_read"),
            _bytes_rate(line.rates, "bytes_written"),
            _rate(line.rates, "shared_submissions"),
            _rate(line.rates, "dedicated_submissions"),
        ],
    )
    _table(
        report,
        "Caches",
        figures("hits/s", "misses/s", "hit rate", "cached", "evictions/s"),
        [line for line in look.lines if line.kind == "cache"],
        watch,
        lambda line: [
            _rate(line.rates, "hits"),
            _rate(line.rates, "misses"),
            _percent(hit_rate(line)),
            _core.bytes_text(line.values.get("bytes_cached", 0)),
            _rate(line.rates, "evictions"),
        ],
    )


def _table(
    report: Report,
    title: str,
    columns: list[Column],
    lines: list[Line],
    watch: Watch,
    cells: Callable[[Line], list[str]],
) -> None:
    if not lines:
        return
    report.say()
    report.say(title, "bold")
    report.table(
        [
            Column("process", right=True, key=True),
            Column("program", optional=1),
            Column("name", key=True),
            *columns,
            Column("recent", optional=2),
        ],
        [
            [
                str(line.process or "-"),
                line.program,
                line.name,
                *cells(line),
                sparkline(watch.history.get(line.key, [])),
            ]
            for line in lines
        ],
    )


def _rate(rates: Mapping[str, float], name: str) -> str:
    return f"{rates[name]:,.0f}" if name in rates else "-"


def _bytes_rate(rates: Mapping[str, float], name: str) -> str:
    return f"{rates[name] / 1e9:.3f} GB/s" if name in rates else "-"


def _share(part: int, whole: int) -> str:
    return _percent(part / whole if whole else None)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _show(watch: Watch, interval_s: float) -> int:
    """Redraw the view until a signal ends it."""
    stream = live_stdout()
    while True:
        text = io.StringIO()
        _print_look(Report(text, Report(stream).width), watch, watch.look())
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
