# SPDX-License-Identifier: Apache-2.0
"""Benchmarks without measuring: what their programs would print, with figures of many digits."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace._apps.tune import door
from headrace._apps.tune.search import PAIR, Choice
from headrace._apps.tune.tuner import Tuning
from headrace.machine import Node
from headrace_lab.commands.bench import engine, injection
from headrace_lab.families.facts import Facts, Queue
from headrace_lab.families.points import Point as MoverPoint

TIMES = [123_456.7, 98_765.4, 234_567.8, 87_654.3, 345_678.9, 111_111.1, 99_999.9]
RINGS = (
    "naive",
    "clflushopt",
    "clwb",
    "optimised",
    "optimised_batch8",
    "libpmem_balcer",
    "libpmem_staged",
    "libpmem_same",
    "store_stream",
    "store_stream_fenced",
)
FACTS = Facts(
    queues=tuple(
        Queue(
            name=f"dsa{device}/wq{device}.{number}",
            device=f"dsa{device}",
            mode=("shared", "dedicated")[number],
            node=device % 2,
            entries=(64, 16)[number],
            depth_max=(62, 15)[number],
            batch_max=1024,
            block_on_fault=True,
            priority=10 - number,
            engines=4,
            group=0,
            emulated=False,
        )
        for device in range(8)
        for number in range(2)
    ),
    no_queue="",
    nodes=(
        Node(0, "ddr", "firmware", 0, 0, tuple(range(8)), None, ()),
        Node(1, "ddr", "firmware", 0, 0, tuple(range(8, 16)), None, ()),
        Node(2, "hbm", "firmware", 0, 0, (), None, ()),
    ),
    available_bytes=256 << 30,
    cpus=16,
    last_cache_bytes=105 << 20,
    perf_allowed=True,
    monitors_cache=True,
)
QUEUES = (
    "headrace",
    "cached_index",
    "memcpy_own",
    "memcpy_across",
)


def scaled(factor: float) -> list[float]:
    return [each * factor for each in TIMES]


def answer(command: list[str], *_told: str, **_options: str) -> dict[str, Any]:
    """What a program of a benchmark prints."""
    name = next(each for each in reversed(command) if re.match("/headrace-[a-z-]*$", each))
    answers = {
        "cache": _cache,
        "emulator-inprocess": _emulator,
        "emulator-client": _emulator,
        "message": _message,
        "store": _store,
        "injection": _injection,
        "pmem": _pmem,
        "faults": _faults,
    }
    return answers[re.sub(".*headrace-(bench-)?", "", name)]()


def _cache() -> dict[str, Any]:
    return {
        "series": {
            case: {"ours_ns": TIMES, "fuerst_ns": scaled(12.34)}
            for case in ("hit_1t", "hit_2t", "mixed_2t", "miss_1t")
        },
        "bytes_per_entry": 143.2,
        "instructions": 205_440,
        "system_calls": 12,
        "barriers": 10,
    }


def _faults() -> dict[str, Any]:
    names = ("instructions", "instructions_max", "submit_ns", "submit_ns_p999", "caller_bytes")
    counts = ("descriptors", "retries", "page_faults", "lost")
    scripts = ("healthy", "slow", "page_faults", "lost", "silent", "refusing", "closed")
    return {
        "bytes": 262_144,
        "submissions": 2000,
        "scripts": {
            script: {
                **dict.fromkeys(names, 1234 * (index + 1)),
                "caller_bytes": 0,
                **dict.fromkeys(counts, 7),
            }
            for index, script in enumerate(scripts)
        },
    }


def _emulator() -> dict[str, Any]:
    kinds = ("noop", "noop_batched", "copy", "memcpy")
    return {f"{kind}_ns": scaled(10.0**-number) for number, kind in enumerate(kinds)}


def _pmem() -> dict[str, Any]:
    return {
        "persistent": False,
        "flush_ns": {"clflush": TIMES, "clwb": scaled(0.25)},
        "lengths": [
            {
                "entry_bytes": length,
                "series": {
                    ring: {"enqueue_ns": scaled(length), "dequeue_ns": TIMES} for ring in RINGS
                },
            }
            for length in (64, 256, 1024, 2048, 4096, 16384)
        ],
    }


def _message() -> dict[str, Any]:
    return {
        "sender_cpu": 12,
        "receiver_cpu": 97,
        "same_core": False,
        "throughput": [
            {"message_bytes": size, "batch": batch, "name": name, "times_ns": scaled(size / 64)}
            for size, batch in ((8, 1), (8, 16), (64, 1), (64, 16), (4096, 1), (1 << 20, 1))
            for name in QUEUES
        ],
        "round_trips": [
            {
                "message_bytes": size,
                "name": name,
                "p50_ns": TIMES,
                "p99_ns": scaled(5),
                "p999_ns": scaled(50),
            }
            for size in (8, 64, 4096, 1 << 20)
            for name in QUEUES[:-2]
        ],
    }


def _store() -> dict[str, Any]:
    stores = [f"{way}_{size}" for way in ("put", "get") for size in _STORE_SIZES]
    copies = [f"{how}_{way}_small" for how in ("copy", "list") for way in ("in", "out")]
    times = [*stores, *copies, "copy_in_large", "copy_out_large"]
    series = {f"{each}{suffix}": scaled(2) for each in times for suffix in ("", "_cpu")}
    return {
        "series_ns": series | {f"{each}_submit": TIMES for each in stores},
        "blocks_large": 64,
    }


_STORE_SIZES = ("large", "small", "small_handed")


def _injection() -> dict[str, Any]:
    return {
        "sender_cpu": 12,
        "receiver_cpu": 97,
        "same_core": True,
        "counters": "not permitted by perf_event_paranoid",
        "cells": [
            {
                "working_set_bytes": working_set,
                "message_bytes": size,
                "placement": placement,
                "computation_ns": scaled(factor),
                "total_ns": scaled(factor * 2),
            }
            for working_set in injection.WORKING_SET_BYTES
            for size in injection.MESSAGE_BYTES
            for placement, factor in (("memory", 1.3), ("cache", 1.0), ("header", 1.1))
        ],
    }


def _counts(_share: Callable[[float], None]) -> tuple[engine.Counts, dict[str, object]]:
    modes = (
        "channel_copy",
        "channel_batch32",
        "job_copy",
        "job_batch32",
        "run_copy",
    )
    values = dict.fromkeys(modes, 1234.5678)
    counts = dict.fromkeys(("instructions", "locked", "mutexes"), values)
    counts["allocations"] = dict.fromkeys(values, 0.0)
    return counts, {"instructions_per_operation": values}


def records(
    points: list[MoverPoint], _program: str, rounds: int, *_others: object
) -> Iterator[dict[str, Any]]:
    """What headrace-bench-movement prints."""
    metrics = ("prepare_ns", "submit_ns", "wait_ns", "processor_ns", "cycles", "cache_bytes")
    for turn in range(rounds):
        for number in range(len(points)):
            time_ns = TIMES[turn % len(TIMES)]
            yield {
                "point": number,
                "round": turn,
                "time_ns": time_ns,
                "operations": 12,
                "bytes": 1 << 20,
                "by_processor": 0,
                "each_ns": [time_ns, time_ns / 2],
                "read_ns_per_line": 1.234,
                "beside_gb_per_s": 12.34,
                **dict.fromkeys(metrics, 123_456.7),
            }


def tuning() -> Tuning:
    """What a search would have found."""
    warm = (
        "ymm load=t store=t prefetch=t0:4@16+target block=8 align=none forward streams=4 "
        "touch=source"
    )
    cold = "zmm load=t store=nt prefetch=none block=16 align=target forward streams=1"
    variants = [warm, f"{warm}{PAIR}{cold}", None]
    cells = [f"{heat} {how}" for heat in ("hot", "cold") for how in ("random", "aligned")]
    choices = [
        Choice(
            bytes_max=1 << bits,
            variant=variants[bits % 3],
            best=warm,
            ratios=dict.fromkeys(cells, (1.2345, 1.1234, 1.3456)),
            ratio=1.2345,
            confidence=0.99,
            confidence_best=0.54,
            bytes_per_s_cold=123.4e9,
            bytes_per_s_hot=234.5e9,
            variant_count=4321,
            tried_count=321,
            batch_count=12345,
            reason="slower in one of its conditions",
        )
        for bits in range(8, 27)
    ]
    return Tuning(choices=choices, seconds=123.4)


def _cycles(count: int) -> dict[str, int]:
    known = ("got", "failed", "evicted", "dropped", "lost", "bad", "openings")
    return {"cycles": count, "seed": 1, "disk_fails": True} | dict.fromkeys(known, 0)


@pytest.fixture
def fabricated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks whose figures come from here."""
    for name in ("_measure", "faults"):
        monkeypatch.setattr(f"headrace_lab.commands.bench.{name}.run_program", answer)
        monkeypatch.setattr(f"headrace_lab.commands.bench.{name}.find_program", _found)
    monkeypatch.setattr("headrace_lab.families.measure._records", records)
    monkeypatch.setattr("headrace_lab.commands.report.measure_rings", lambda *_: _pmem())
    classes = [
        {"bytes_max": 1 << bits, "variant": variant, "measured": {"ratio": ratio}}
        for bits, variant, ratio in ((10, "xmm", 1.3), (20, "ymm", 1.1))
    ]
    profile = {"classes": classes}
    monkeypatch.setattr("headrace_lab.commands.report.load_profile", lambda _: profile)
    for module in ("headrace_lab.commands.bench._family", "headrace_lab.commands.report"):
        monkeypatch.setattr(f"{module}.find_measuring_program", lambda: "/headrace-bench-movement")
        monkeypatch.setattr(f"{module}.gather_facts", lambda: FACTS)
    monkeypatch.setattr(
        "headrace_lab.commands.bench.store._submissions_of_python", lambda _rounds: TIMES
    )
    monkeypatch.setattr("headrace_lab.commands.bench.store._cycle", _cycles)
    monkeypatch.setattr(engine, "count", _counts)
    monkeypatch.setattr(door, "measure", _door)


def _found(name: str, *_words: str, **_options: str) -> str:
    return f"/{name}"


def _door(*_others: object) -> door.Door:
    points = [
        door.Point(function, 1 << bits, temperature, lengths)
        for function in door.FUNCTIONS
        for bits in range(4, 27)
        for temperature in ("hot", "memory")
        for lengths in ("fixed", "random")
    ]
    times = {door.GLIBC: 10.0, door.CONTROL: 10.1, door.TUNED: 9.0, door.LIBRARY: 9.5}
    return door.Door({way: [dict.fromkeys(points, each)] * 7 for way, each in times.items()})
