# SPDX-License-Identifier: Apache-2.0
"""Copy some MiB in pieces of many sizes, check every byte, and say who did it.

    python -m headrace.examples.copy [--path auto|dsa|cpu]

On a machine with a DSA, or after ``headrace emulate --``, the devices do it; elsewhere processors
do, and the program says why.
"""

import argparse
import sys

import numpy as np

import headrace
from headrace.examples import run

SIZES = (64, 1 << 10, 4 << 10, 24 << 10, 64 << 10, 1 << 20, 4 << 20)
BYTES_EACH = 8 << 20
JOBS_AT_ONCE = 16
NOTES_MAX = 3


def copy_in_pieces(engine: headrace.Engine, size: int, count: int, path: headrace.MoverPath) -> int:
    """Copy `count` pieces of `size` bytes, some at a time, and check them.

    Returns:
        How many bytes a device copied.
    """
    source = np.random.default_rng(size).integers(0, 256, size * count, np.uint8)
    target = np.zeros_like(source)
    by_device = 0
    for first in range(0, count, JOBS_AT_ONCE):
        pieces = [
            slice(at * size, (at + 1) * size)
            for at in range(first, min(first + JOBS_AT_ONCE, count))
        ]
        jobs = [
            engine.submit(source=source[piece], target=target[piece], path=path) for piece in pieces
        ]
        by_device += sum(job.result().bytes_by_device for job in jobs)
    checksum = engine.run(headrace.Operation.crc(source), path=path).crc
    if engine.run(headrace.Operation.crc(target), path=path).crc != checksum:
        sys.exit(f"copy: pieces of {size} bytes: the checksums differ")
    if not np.array_equal(source, target):
        sys.exit(f"copy: pieces of {size} bytes: the bytes differ")
    return by_device


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="python -m headrace.examples.copy", description=__doc__)
    paths = ("auto", "dsa", "cpu")
    parser.add_argument("--path", choices=paths, default="dsa", help="which movers to use")
    path = parser.parse_args(arguments).path
    with headrace.Engine(path=path) as engine:
        for mover in engine.mover_infos:
            print(f"{mover.name}: {mover.note or ('a device' if mover.hardware else 'processors')}")
        for note in engine.notes[:NOTES_MAX]:
            print(note)
        if len(engine.notes) > NOTES_MAX:
            print(f"... and {len(engine.notes) - NOTES_MAX} more such notes")
        for size in SIZES:
            count = max(1, min(256, BYTES_EACH // size))
            by_device = copy_in_pieces(engine, size, count, path)
            share = by_device / (size * count)
            print(f"{count:4} pieces of {size:8} bytes: correct, {share:.0%} by a device")
        totals = engine.statistics
        print(f"{totals.bytes_moved} bytes in {totals.jobs_done} jobs", end=", ")
        print(f"{totals.bytes_by_device} bytes by devices", end=", ")
        if any(mover.hardware for mover in engine.mover_infos):
            print(f"{totals.jobs_fell_back} jobs fell back to processors")
        else:
            print("no DSA: processors did it")
        for name, device in engine.device_statistics.items():
            if device.descriptors:
                print(
                    f"{name}: {device.descriptors} descriptors, {device.page_faults} page faults, "
                    f"{device.errors} errors, {device.lost} lost, "
                    f"full {device.retries} times, {device.bytes_on_cpu} bytes by processors"
                )


if __name__ == "__main__":
    run(main)
