# SPDX-License-Identifier: Apache-2.0
"""Batched jobs, completion callbacks and awaited jobs.

    python -m headrace.examples.jobs

On a machine with a DSA, or after ``headrace emulate --``, devices do the larger operations.
"""

import asyncio
import queue

import numpy as np

import headrace
from headrace import Operation
from headrace.examples import run


def main() -> None:
    """Run the example."""
    # begin
    source = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    target, second = np.zeros_like(source), np.zeros_like(source)
    with headrace.Engine() as engine:
        # Many operations in one job; a fenced one starts after all before it.
        job = engine.submit_batch(
            [
                Operation.copy(source=source, target=target),
                Operation.crc(source),
                Operation.copy_crc(source=target, target=second).fenced(),
            ]
        )
        while not job.wait(timeout=0.1):
            print("still at work")
        job.result()  # Raises JobFailedError if one of them failed.
        print("same checksum:", job.completions[1].crc == job.completions[2].crc)

        # A callback gets the completion, on the thread that ends the job.
        ends: queue.Queue[headrace.Completion] = queue.Queue()
        engine.submit(Operation.compare(source, second), then=ends.put).wait()
        print("different:", ends.get(timeout=60).different)

        # Coroutines await jobs.
        async def fill_and_check() -> headrace.Completion:
            await engine.submit(Operation.fill(target, 7))
            return await engine.submit(Operation.compare_pattern(target, 7))

        end = asyncio.run(fill_and_check())
        print("filled:", not end.different, "path:", end.path, end.fallback_cause)
    # end


if __name__ == "__main__":
    run(main)
