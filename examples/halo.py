# SPDX-License-Identifier: Apache-2.0
"""A halo exchange among four processes, as in stencil codes: to be traced and replayed.

HEADRACE_TRACE=halo.trace python examples/halo.py [--bytes N] [--steps N]
headrace sim replay halo.trace --machine injection-node --inject payload

Each rank averages its part of a ring of numbers, sends its two edges to its neighbours and receives
theirs, in each step.
"""

import argparse
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

import numpy as np
import numpy.typing as npt

import headrace

RANKS = 4
INTERIOR = 1 << 16
Numbers = npt.NDArray[np.float64]
Queues = dict[tuple[int, int], headrace.Queue]


def rank(me: int, queues: Queues, halo: int, steps: int) -> float:
    """Compute and exchange; the sum of the rank's numbers stays what it was in the whole ring."""
    left, right = (me - 1) % RANKS, (me + 1) % RANKS
    numbers: Numbers = np.full(INTERIOR + 2 * halo, float(me))
    with (
        queues[me, left].producer() as to_left,
        queues[me, right].producer() as to_right,
        queues[left, me].consumer() as from_left,
        queues[right, me].consumer() as from_right,
    ):
        for _ in range(steps):
            to_left.put(numbers[halo : 2 * halo])
            to_right.put(numbers[-2 * halo : -halo])
            from_left.get_into(numbers[:halo])
            from_right.get_into(numbers[-halo:])
            numbers[1:-1] = (numbers[:-2] + numbers[1:-1] + numbers[2:]) / 3
    return float(numbers[halo:-halo].sum())


def exchange(halo_bytes: int, steps: int) -> float:
    """Run all ranks; returns the sum of all numbers."""
    context = get_context("fork")
    halo = max(1, halo_bytes // 8)
    queues = {
        (a, b): headrace.Queue(capacity=max(1 << 16, 8 * halo_bytes))
        for a in range(RANKS)
        for b in ((a - 1) % RANKS, (a + 1) % RANKS)
    }
    sums: SimpleQueue[float] = context.SimpleQueue()
    ranks = [
        context.Process(target=lambda me=me: sums.put(rank(me, queues, halo, steps)))
        for me in range(RANKS)
    ]
    for each in ranks:
        each.start()
    total = sum(sums.get() for _ in ranks)
    for each in ranks:
        each.join()
    return total


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=4096, help="bytes of an edge")
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    total = exchange(asked.bytes, asked.steps)
    print(f"{RANKS} ranks, {asked.steps} steps, edges of {asked.bytes} bytes: sum {total:.6g}")


if __name__ == "__main__":
    main()
