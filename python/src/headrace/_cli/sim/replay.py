# SPDX-License-Identifier: Apache-2.0
"""``headrace sim replay``: the time of a traced program on other machines."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from headrace import _core
from headrace._apps.sim.picture import draw_timeline
from headrace._apps.sim.sweep import points_of
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import print_document
from headrace._cli._report import Column, Report, figures
from headrace._cli.sim._machine import machine_of
from headrace._files import Output
from headrace._scenarios import Parameter, Scenario
from headrace.errors import Error, InvalidArgumentError, NotFoundError
from headrace.simulator import Place, Replayed, replay

# The replay has no thresholds of sizes.
_POLICIES = tuple(name for name in _core.policy_names() if name != "by_size")
_BINS = 200
_NODE_MAX = 255
_TIMES = ("time_s", "waited_s", "moving_s", "computing_s")
_SWEPT = Scenario(
    "replay",
    "",
    "",
    (
        Parameter("devices", "count", (), ()),
        Parameter("workers", "count", (), ()),
        Parameter("working_set", "size", (), ()),
        Parameter("compute_scale", "number", (), ()),
        Parameter("policy", "word", _POLICIES, ()),
        Parameter("path", "word", ("recorded", "cpu", "dsa"), ()),
    ),
)


@click.command("replay", cls=Command)
@click.argument("trace", type=_options.FilePath("TRACE"), metavar="TRACE")
@_options.option(
    "--machine",
    "machines",
    type=_options.FilePath("MACHINE"),
    multiple=True,
    help="A machine of 'headrace sim list', or the path of a record with a model; repeat it to "
    "compare machines.",
)
@_options.option(
    "--map",
    "places",
    type=_options.FilePath("PLACES"),
    help="Nodes of the machine for recorded ones, and for copies of caches, as in "
    "0=ddr0,copies=hbm: a number, or a kind of memory with a number. Default: the same number.",
)
@_options.option(
    "--sweep",
    type=_options.FilePath("KEY=VALUES"),
    multiple=True,
    help="Values of devices, workers, working_set, compute_scale, policy or path, as in "
    "devices=1,2,4; can be repeated.",
)
@_options.option(
    "--policy",
    type=_options.Choice(*_POLICIES),
    default="round_robin",
    help="How devices are chosen.",
)
@_options.option(
    "--path",
    type=_options.Choice("recorded", "cpu", "dsa"),
    default="recorded",
    help="What carries out the operations; recorded: as the program asked.",
)
@_options.option(
    "--compute-scale",
    type=_options.Number(0, 1000),
    default="1",
    help="Factor of the program's own computing.",
)
@_options.option(
    "--inject",
    type=_options.Choice("none", "header", "payload", "whole"),
    help="Messages come through a NIC, which puts this part of them into the receiver's L2.",
)
@_options.plot_option("the threads over time")
@_options.json_option
def command(
    trace: str,
    machines: tuple[str, ...],
    places: str | None,
    sweep: tuple[str, ...],
    policy: str,
    path: str,
    compute_scale: float,
    inject: str | None,
    plot: Output | None,
    *,
    as_json: bool,
) -> None:
    """Predict the time of a traced program on other machines.

    HEADRACE_TRACE=FILE in the environment records a program. The order of operations, their sizes
    and nodes, waits and the program's own computing are taken from the trace; how long operations
    took is not.

    Example: headrace sim replay query.trace --machine xeon-max-flat --machine spr-cxl
    """
    _options.refuse_two_on_stdout("--plot", plot, as_json=as_json)
    if not machines:
        _options.refuse("give a --machine, or several")
    try:
        points = points_of(_SWEPT, sweep) if sweep else [{}]
    except (InvalidArgumentError, NotFoundError) as error:
        _options.refuse(str(error))
    runs = []
    for name in machines:
        record = machine_of(name)
        fixed = {
            "machine": str(record),
            "policy": policy,
            "path": path,
            "compute_scale": compute_scale,
            **_nodes(places, record),
        }
        runs += [fixed | {"bins": _BINS if plot else 0} | _values(point) for point in points]
    place = Place(
        "l2" if inject in {"header", "whole"} else "memory",
        "l2" if inject in {"payload", "whole"} else "memory",
    )
    head, results = replay(trace, runs, place=(lambda _: place) if inject else None)
    names = [name for name in machines for _ in points]
    results = [replace(each, machine=name) for each, name in zip(results, names, strict=True)]
    best = min(results, key=lambda each: each.time_s)
    if plot is not None:
        draw_timeline(plot, f"{trace} on {best.machine} (simulated)", best)
    if as_json:
        print_document(
            "sim-replay",
            machine={"names": list(dict.fromkeys(machines))},
            results=[
                {key: value for key, value in asdict(each).items() if key != "options"}
                | {"parameters": point}
                for each, point in zip(results, points * len(machines), strict=True)
            ],
            summary={
                "kind": "simulated",
                **{key: getattr(best, key) for key in ("machine", *_TIMES, "bound")},
                **{key: head[key] for key in ("operations", "recorded_s", "lost")},
                "threads": len(head["threads"]),
                "recorded_waited_s": head["waited_s"],
                "cut_off_bytes": int(head["cut_off_bytes"]),
            },
        )
        return
    _print(head, results, points * len(machines))


def _values(point: dict[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, text in point.items():
        if key in {"policy", "path"}:
            values[key] = text
            continue
        try:
            number = float(text) if key == "compute_scale" else _core.parse_bytes(text)
        except (Error, ValueError):
            _options.refuse_value("--sweep", f"{key}={text}: '{text}' is not a number")
        values["working_bytes" if key == "working_set" else key] = number
    return values


def _nodes(places: str | None, record: Path) -> dict[str, object]:
    if places is None:
        return {}
    model = json.loads(record.read_text(encoding="utf-8"))["model"]
    by_kind: dict[str, int] = {}
    counts: dict[str, int] = {}
    for node in model["nodes"]:
        kind = node["kind"]
        by_kind[f"{kind}{counts.get(kind, 0)}"] = node["node"]
        by_kind.setdefault(kind, node["node"])
        counts[kind] = counts.get(kind, 0) + 1
    nodes: dict[str, int] = {}
    found: dict[str, object] = {"nodes": nodes}
    for part in places.split(","):
        key, _, name = part.partition("=")
        number = by_kind.get(name, int(name) if name.isdigit() else None)
        is_node = key.isdigit() and int(key) <= _NODE_MAX
        if number is None or not (key == "copies" or is_node):
            _options.refuse_value(
                "--map",
                f"'{part}': write NODE=PLACE or copies=PLACE; places of '{record.stem}' are "
                f"{', '.join(by_kind)} and numbers of nodes",
            )
        if key == "copies":
            found["copies"] = number
        else:
            nodes[key] = number
    return found


def _print(head: dict[str, Any], results: list[Replayed], points: list[dict[str, str]]) -> None:
    report = Report()
    report.say(
        f"{head['program'] or 'descriptors'}: {head['operations']:,} operations by "
        f"{len(head['threads'])} threads in {head['recorded_s']:.4g} s, "
        f"{head['waited_s']:.4g} s waited (recorded)"
    )
    if head["cut_off_bytes"] or head["lost"]:
        report.say("The trace is not complete: what is whole was used", head="- ")
    report.table(
        [
            Column("machine", key=True),
            *(Column(key, key=True) for key in points[0]),
            *figures(*(key.replace("_", " ") for key in _TIMES)),
            Column("bound", folds=True),
        ],
        [
            [
                each.machine,
                *point.values(),
                *(f"{getattr(each, key):.4g}" for key in _TIMES),
                each.bound,
            ]
            for each, point in zip(results, points, strict=True)
        ],
    )
    if len(results) == 1:
        report.say()
        report.table(
            [Column("resource", key=True), *figures("used", "full")],
            [
                [one["name"], f"{one['utilisation']:.1%}", f"{one['full']:.1%}"]
                for one in sorted(results[0].resources, key=lambda one: -one["utilisation"])[:12]
            ],
        )
        for one in results[0].devices:
            report.say(
                f"device {one['device']}: {one['submissions']:.0f} submissions, "
                f"{one['queued_us']:.3g} us in the queue each"
            )
    report.say("Simulated; the times of all threads are added but for 'time s'")
    for note in sorted({note for each in results for note in each.notes}):
        report.say(note, head="- ")
