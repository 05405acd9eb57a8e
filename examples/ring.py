# SPDX-License-Identifier: Apache-2.0
"""Two ends of a ring that survive kill -9: every entry arrives once, in order.

headrace pmem ring make ring.pmem
python3 examples/ring.py produce ring.pmem COUNT
python3 examples/ring.py consume ring.pmem COUNT OUTPUT

Kill either and start it again with the same words.
"""

import os
import sys
import time
from pathlib import Path

from headrace.pmem import Ring


def produce(ring: Ring, count: int) -> None:
    """Enqueue numbered entries behind the last durable one."""
    with ring.producer(granularity="line") as producer:
        while producer.next_ordinal < count:
            if not producer.enqueue(b"entry %d" % producer.next_ordinal):
                time.sleep(0.001)  # The ring is full.


def consume(ring: Ring, count: int, path: Path) -> None:
    """Append entries to a file, a line each; acknowledge them once they are on the disk."""
    path.touch()
    *lines, torn = path.read_bytes().split(b"\n")
    os.truncate(path, path.stat().st_size - len(torn))
    written = int(lines[-1].split(b"\t")[0]) + 1 if lines else 0
    with ring.consumer(granularity="line") as consumer, path.open("ab") as output:
        while written < count:
            # What a killed consumer wrote and did not acknowledge comes again.
            entries = [entry for entry in consumer if entry.ordinal >= written]
            output.writelines(b"%d\t%s\n" % (entry.ordinal, entry.data) for entry in entries)
            output.flush()
            os.fsync(output.fileno())
            consumer.acknowledge()
            written += len(entries)
            if not entries:
                time.sleep(0.001)


if __name__ == "__main__":
    role, file, total, *rest = sys.argv[1:]
    if role == "produce":
        produce(Ring.open(file), int(total))
    else:
        consume(Ring.open(file), int(total), Path(rest[0]))
