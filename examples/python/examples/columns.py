# SPDX-License-Identifier: Apache-2.0
"""A producer process sends chunks of a column to a consumer, one per message.

python -m headrace.examples.columns
"""

import multiprocessing

import numpy as np

import headrace
from headrace.examples import run

ROWS = 100_000
CHUNK_COUNT = 20


def produce(queue: headrace.Queue) -> None:
    """Send the chunks, then end the queue."""
    with queue.producer() as producer:
        for chunk in range(CHUNK_COUNT):
            producer.put(np.arange(chunk * ROWS, (chunk + 1) * ROWS, dtype=np.int64))
    queue.end()


def main() -> None:
    """Run the example."""
    queue = headrace.Queue(capacity="4MiB")
    process = multiprocessing.get_context("spawn").Process(target=produce, args=(queue,))
    process.start()
    with queue.consumer() as consumer:
        sums = [int(np.frombuffer(message, np.int64).sum()) for message in consumer]
    process.join()
    print(f"{len(sums)} chunks, sum {sum(sums):,}")


if __name__ == "__main__":
    run(main)
