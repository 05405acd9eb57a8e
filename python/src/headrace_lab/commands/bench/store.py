# SPDX-License-Identifier: Apache-2.0
"""``headrace bench store``: the block store beside plain copies."""

import time
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from headrace._apps.figures import Figure
from headrace._cli import _options
from headrace._cli._output import progress
from headrace._cli._report import Column, Report
from headrace._temporary import temporary_folder
from headrace._words import counted
from headrace.engine import Engine
from headrace.errors import NotFoundError
from headrace.store import Store
from headrace_lab.commands.bench import _measure
from headrace_lab.commands.bench._store_file import measure_file
from headrace_lab.commands.bench._store_shared import measure_shared
from headrace_lab.trust.cycles import run_cycles
from headrace_lab.trust.faults import ALL_FAULTS, COUNTS, NotPossibleError, faulty_disk, try_store
from headrace_lab.trust.stores import SUBJECTS

_PROGRAM = "headrace-bench-store"
_TRIED = "measure the block store"
_BLOCK = 2**20
_BATCH = 64
_CYCLES_MAX = 10**9
_WORDS = {
    "wrong_bytes": "wrong",
    "acknowledged_lost": "lost",
    "hangs": "hung",
    "crashes": "crashed",
    "unavailable": "(unavailable)",
}


@_measure.benchmark(
    "store",
    15,
    "",
    _options.option(
        "--cycles",
        type=_options.Count(1, _CYCLES_MAX),
        default="20000",
        help="Blocks put or got on a disk that fails by chance, each compared.",
    ),
    _options.option(
        "--folder",
        type=_options.FilePath(metavar="FOLDER"),
        help="Also compare stores in files of up to 8 GiB here with fio.",
    ),
    _options.option(
        "--processes",
        type=_options.Count(2, 16),
        help="Instead: a store that this many processes share, beside stores of their own.",
    ),
    _options.flag(
        "--faults", help="Instead: what files of stores, and of others, lose under faults."
    ),
    curves=True,
)
def command(
    rounds: int, cycles: int, folder: str | None, processes: int | None, *, faults: bool
) -> _measure.Outcome:
    """Measure the block store beside memcpy, and its blocks under faults.

    One worker thread copies blocks of 1 MiB into a tier of memory and back; the calling thread, or
    that worker, blocks of 4 KiB in batches of 64; in turns with copies of the same blocks by one
    thread, the bound. Rates per core are by the processor time of all threads. Then random puts,
    gets, removals, evictions and openings of a file whose disk fails by chance (a FUSE file
    system; without FUSE it does not fail); each block that comes back is compared.

    --faults kills processes, damages files and lets disks fail under a store in a file, plain
    files, and lmdb, rocksdict (RocksDB) and diskcache where they are installed, --rounds times.

    Example: headrace bench store --json
    """
    if faults:
        return _measure_trust(rounds)
    if processes is not None:
        with progress("measuring a shared store"):
            found = measure_shared(processes, rounds)
        return _measure.Outcome(
            "store",
            rounds,
            results={"processes": _measure.documents_of(found)},
            summary=_measure.medians_of(found),
            show=lambda report: _measure.print_pairs(report, _texts(found)),
        )
    with progress("measuring the block store"):
        program = _measure.find_program(_PROGRAM, _TRIED)
        measured = _measure.run_program([program, str(rounds), str(_BATCH)], _TRIED)
        submit_python = _submissions_of_python(rounds)
    with progress("cycles with faults"):
        measured["cycles"] = _cycle(cycles)
    series: dict[str, _measure.Times] = measured["series_ns"]
    ratios = {
        "put_1m_vs_memcpy": _measure.speed_ratio(series["put_large"], series["copy_in_large"]),
        "get_1m_vs_memcpy": _measure.speed_ratio(series["get_large"], series["copy_out_large"]),
        "put_4k_share_of_bound": _measure.speed_ratio(
            series["put_small_cpu"], _bound(series, "in")
        ),
        "get_4k_share_of_bound": _measure.speed_ratio(
            series["get_small_cpu"], _bound(series, "out")
        ),
    }
    rates = {
        f"{way}_4k{copier}_blocks_per_{unit}": _measure.rate_per_s(
            series[f"{way}_small{copier}{times}"]
        )
        for way in ("put", "get")
        for copier in ("", "_handed")
        for unit, times in (("s", ""), ("s_core", "_cpu"))
    }
    summary = {
        "submit_us_64": median(series["put_large_submit"]) / 1e3,
        "submit_us_64_python": median(submit_python) / 1e3,
        "bandwidth_vs_memcpy": min(
            ratios["put_1m_vs_memcpy"].median, ratios["get_1m_vs_memcpy"].median
        ),
        **_measure.medians_of(ratios | rates),
        "cycles": cycles,
        "cycles_bad": measured["cycles"]["bad"],
    }

    def show(report: Report) -> None:
        rows = [
            [name, ratios[name].text if name in ratios else f"{value:,.3g}"]
            for name, value in summary.items()
        ]
        _measure.print_pairs(report, rows)
        report.say(
            f"Medians of {counted(rounds, 'round')}, in brackets the quartiles; store and memcpy "
            "in turns. 'headrace bench store' in the reference explains each."
        )

    outcome = _measure.Outcome(
        "store",
        rounds,
        results={
            **measured,
            "submit_python_ns": _measure.times_document(submit_python),
            "figures": _measure.documents_of(ratios | rates),
        },
        summary=summary,
        show=show,
    )
    if folder is None:
        return outcome
    with progress("measuring beside fio"):
        return _with_files(outcome, measure_file(folder, rounds))


def _texts(found: dict[str, Figure]) -> list[list[str]]:
    return [[name, each.text] for name, each in found.items()]


def _with_files(outcome: _measure.Outcome, found: dict[str, Figure]) -> _measure.Outcome:
    summary = _measure.medians_of(found)
    worst = [("cold_get", "_vs_fio", min), ("durable_put", "_vs_fio", min)]
    for way, rest, function in (*worst, ("single_get", "_time_vs_fio", max)):
        summary[way + rest] = function(v for name, v in summary.items() if name.startswith(way))

    def show(report: Report) -> None:
        outcome.show(report)
        _measure.print_pairs(report, _texts(found), "rate relative to fio's")

    return replace(
        outcome,
        results={**outcome.results, "fio": _measure.documents_of(found)},
        summary={**outcome.summary, **summary},
        show=show,
    )


def _faults_program() -> str:
    return _measure.find_program("headrace-fault-fs", _TRIED, remedy="install libfuse3")


def _cycle(count: int) -> dict[str, int]:
    with temporary_folder("headrace-bench-") as folder:
        try:
            with faulty_disk(_faults_program(), folder) as mount:
                return run_cycles(count, 1, mount, mount / ".faults") | {"disk_fails": True}
        except (NotFoundError, NotPossibleError):
            return run_cycles(count, 1, folder, None) | {"disk_fails": False}


def _measure_trust(rounds: int) -> _measure.Outcome:
    program = _faults_program()
    stores: dict[str, Any] = {}
    for name, subject in SUBJECTS.items():
        found = name if name != "files" else "headrace"
        if find_spec(found) is None:
            stores[name] = {"absent": f"install {name} by pip"}
            continue
        with progress(f"faults under {name}"):
            results = try_store(name, rounds, program)
        stores[name] = {"version": version(found), "settings": subject.settings, "faults": results}
    ours = stores["headrace"]["faults"].values()

    def show(report: Report) -> None:
        present = {name: each["faults"] for name, each in stores.items() if "faults" in each}
        rows = [[fault, *(_cell(each[fault]) for each in present.values())] for fault in ALL_FAULTS]
        titles = [
            name if name == "files" else f"{name} {stores[name]['version']}" for name in present
        ]
        report.table(
            [Column("fault", folds=True), *(Column(each, folds=True) for each in titles)], rows
        )
        for name, each in stores.items():
            report.say(f"{name}: {each.get('absent') or each['settings']}")
        report.say(f"{rounds} tries each, 1 of hangs, with 48 blocks of 64 KiB.")

    return _measure.Outcome(
        "store",
        rounds,
        results={"stores": stores},
        summary={each: sum(counts.get(each, 0) for counts in ours) for each in COUNTS},
        show=show,
    )


def _cell(counts: dict[str, Any]) -> str:
    if "not_possible" in counts:
        return str(counts["not_possible"])
    found = [f"{counts[each]:,} {words}" for each, words in _WORDS.items() if counts[each]]
    return ", ".join(found) or "0"


def _bound(series: dict[str, _measure.Times], way: str) -> _measure.Times:
    """The faster of two ways to make the same copies on one thread."""
    return min((series[f"{name}_{way}_small_cpu"] for name in ("copy", "list")), key=median)


def _submissions_of_python(rounds: int) -> _measure.Times:
    """Time until `Store.put_many` of 64 blocks of 1 MiB returns, once per round."""
    blocks = list(np.ones((_BATCH, _BLOCK), np.uint8))
    keys = [f"block {number}".encode() for number in range(_BATCH)]
    times_ns: list[float] = []
    with (
        Engine(threads_per_node=1, path="cpu") as engine,
        Store([(2 * _BATCH + 1) * _BLOCK], block_bytes=_BLOCK, engine=engine) as store,
    ):
        for _ in range(rounds + 1):
            begin = time.perf_counter_ns()
            transfer = store.put_many(keys, blocks)
            times_ns.append(time.perf_counter_ns() - begin)
            transfer.check()
    return times_ns[1:]
