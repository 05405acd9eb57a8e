# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter while threads of Python are inside Headrace."""

import subprocess
import sys
import textwrap

import pytest
from conftest import TIME_LIMIT_S

INSIDE = {
    "store": """
        store = headrace.Store(["4MiB"], block_bytes="1MiB", inline_max=0)
        block = bytes(1 << 20)
        def use():
            store.put("k", block)
            store.get("k")
    """,
    "cache": """
        engine = headrace.Engine()
        cache = headrace.Cache(engine, "64MiB", "local")
        array = np.ones(1 << 20, np.uint8)
        def use():
            cache.invalidate(array)
            cache.access(array).wait()
    """,
    "a mover of a cache": """
        engine = headrace.Engine()
        mover = lambda *_: [0]
        cache = headrace.Cache(engine, "64MiB", "local", mover=mover)
        array = np.ones(1 << 20, np.uint8)
        def use():
            cache.invalidate(array)
            cache.access(array).wait()
    """,
    "engine": """
        engine = headrace.Engine()
        source = np.ones(1 << 22, np.uint8)
        target = np.empty_like(source)
        def use():
            engine.copy(source=source, target=target)
    """,
    "queue": """
        queue = headrace.Queue()
        producer = queue.producer()
        consumer = queue.consumer()
        def use():
            producer.put(b"1")
            consumer.get()
    """,
    "ring": """
        ring = headrace.pmem.Ring(sys.argv[1], capacity="64KiB")
        producer = ring.producer()
        consumer = ring.consumer()
        def use():
            producer.enqueue(b"1")
            consumer.next()
    """,
}
PROGRAM = """
import sys, threading, time
import numpy as np
import headrace
{inside}
def forever():
    while True:
        use()
class Slow:
    # The interpreter is ending when it is destroyed, and others may take the GIL meanwhile.
    def __del__(self, sleep=time.sleep):
        sleep(0.3)
slow = Slow()
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("place", INSIDE)
def test_a_daemon_thread_inside_headrace_does_not_abort_the_end(
    place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = PROGRAM.format(inside=textwrap.dedent(INSIDE[place]))
    for number in range(2):
        ring = tmp_path_factory.mktemp("exit") / f"ring{number}"
        ended = subprocess.run(
            [sys.executable, "-c", program, ring],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
