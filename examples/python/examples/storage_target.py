# SPDX-License-Identifier: Apache-2.0
"""A storage target: blocks read and written over TCP, with the CRC-32C of each (as in NVMe/TCP).

python -m headrace.examples.storage_target [--operations N]
headrace emulate -- python -m headrace.examples.storage_target

A separate process keeps eight requests in flight. The engine copies and sums a block while the
target parses the next request; in alternating rounds, the serving thread does this itself. With
emulated devices, only the shares are meaningful, not the times.
"""

import argparse
import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

import headrace
from headrace import Operation
from headrace.examples import device_line, run

HEADER = struct.Struct("!cII")  # Read or write, block number, CRC-32C.
READ, WRITE = b"r", b"w"
BLOCK_BYTES = 256 << 10
BLOCKS = 128
DEPTH = 8
ROUNDS = 4
Bytes = npt.NDArray[np.uint8]
Request = tuple[bytes, int, int]  # Read or write, block number, pattern of the block.
Work = tuple[Callable[[], bool], Callable[[], int]]  # poll(), and wait(), which returns the CRC.


@dataclass
class Seen:
    """Cost of one way to copy and sum so far."""

    name: str
    latencies_s: list[float] = field(default_factory=list)
    bad: int = 0
    # CPU time of the serving thread, CPU time of all threads, and elapsed time.
    cost_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    def row(self, caller: "Seen") -> str:
        """A row of the table."""
        count = len(self.latencies_s)
        thread_us, all_us, clock_us = 1e6 * self.cost_s / count
        saved_us = 1e6 * caller.cost_s[0] / count - thread_us
        return (
            f"{self.name:<16}{thread_us:>14.1f}{all_us:>11.1f}{saved_us:>13.1f}"
            f"{1e6 / clock_us:>14,.0f}{1e3 * np.quantile(self.latencies_s, 0.99):>9.2f}"
            f"{self.bad:>5}"
        )


def by_engine(engine: headrace.Engine, operation: Operation) -> Work:
    """Let the engine do it asynchronously."""
    job = engine.submit(operation)
    return job.poll, lambda: job.result().crc


def by_caller(engine: headrace.Engine, operation: Operation) -> Work:
    """Do it on this thread now."""
    crc = engine.run(operation).crc
    return lambda: True, lambda: crc


def receive(connection: socket.socket, target: bytearray | memoryview) -> bool:
    """Fill `target`, despite signals, which end MSG_WAITALL early; False if the peer closed."""
    left = memoryview(target)
    while left and (count := connection.recv_into(left, 0, socket.MSG_WAITALL)):
        left = left[count:]
    return not left


def serve(connection: socket.socket, volume: Bytes, start: Callable[[Operation], Work]) -> None:
    """Answer requests in order until the peer closes."""
    free = [np.empty(BLOCK_BYTES, np.uint8) for _ in range(DEPTH)]
    running: deque[tuple[bytes, int, Bytes, Work]] = deque()
    header = bytearray(HEADER.size)
    while True:
        # Answer ended requests; wait for the oldest only if there is nothing to parse.
        while running and (
            running[0][3][0]() or not free or not select.select([connection], [], [], 0)[0]
        ):
            kind, number, block, (_, crc) = running.popleft()
            connection.sendall(HEADER.pack(kind, number, crc()))
            if kind == READ:
                connection.sendall(block.data)
            free.append(block)
        if not receive(connection, header):
            return
        kind, number, _ = HEADER.unpack(header)
        block, stored = free.pop(), volume[number]
        if kind == WRITE:
            receive(connection, block.data)
            operation = Operation.copy_crc(source=block, target=stored)
        else:
            operation = Operation.copy_crc(source=stored, target=block)
        running.append((kind, number, block, start(operation)))


def use(
    connection: socket.socket, requests: list[Request], patterns: Bytes, crcs: list[int]
) -> tuple[list[float], int]:
    """Send requests, `DEPTH` in flight; return latencies and the number of wrong answers."""
    may_send = threading.Semaphore(DEPTH)
    sent: queue.SimpleQueue[float] = queue.SimpleQueue()

    def send() -> None:
        for kind, number, pattern in requests:
            may_send.acquire()
            sent.put(time.perf_counter())
            connection.sendall(HEADER.pack(kind, number, crcs[pattern]))
            if kind == WRITE:
                connection.sendall(patterns[pattern].data)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    header, block, latencies, bad = bytearray(HEADER.size), np.empty_like(patterns[0]), [], 0
    for kind, number, pattern in requests:
        receive(connection, header)
        if kind == READ:
            receive(connection, block.data)
            bad += not np.array_equal(block, patterns[pattern])
        latencies.append(time.perf_counter() - sent.get())
        bad += HEADER.unpack(header) != (kind, number, crcs[pattern])
        may_send.release()
    sender.join()
    return latencies, bad


def initiate(
    port: int, patterns: Bytes, crcs: list[int], operations: int, results: Connection
) -> None:
    """Use the target over one connection per round and way."""
    random = np.random.default_rng(1)
    held = [0] * BLOCKS
    for _ in range(2 * ROUNDS):
        requests: list[Request] = []
        for step in range(operations):
            number = 37 * step % BLOCKS  # Never two requests in flight for one block.
            kind = READ if random.integers(2) else WRITE
            if kind == WRITE:
                held[number] = int(random.integers(len(crcs)))
            requests.append((kind, number, held[number]))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            results.send(use(connection, requests, patterns, crcs))


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=4000, help="in each of four rounds")
    operations = parser.parse_args().operations
    patterns = np.random.default_rng(2).integers(0, 256, (16, BLOCK_BYTES), np.uint8)
    volume = np.tile(patterns[0], (BLOCKS, 1))
    ours, theirs = Pipe(duplex=False)
    with (
        headrace.Engine() as engine,
        headrace.Engine(path="cpu") as caller,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        crcs = [caller.run(Operation.crc(each)).crc for each in patterns]
        arguments = (listener.getsockname()[1], patterns, crcs, operations, theirs)
        get_context("spawn").Process(target=initiate, args=arguments, daemon=True).start()
        theirs.close()  # recv() then fails if that process ends early.
        listener.settimeout(60)
        # The ways alternate.
        seen = {by_caller: Seen("by the caller"), by_engine: Seen("by the engine")}
        for way in [by_caller, by_engine] * ROUNDS:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begin = time.thread_time(), time.process_time(), time.perf_counter()
            with connection:
                serve(connection, volume, partial(way, engine if way is by_engine else caller))
            end = time.thread_time(), time.process_time(), time.perf_counter()
            latencies_s, bad = ours.recv()
            seen[way].cost_s += np.subtract(end, begin)
            seen[way].latencies_s += latencies_s
            seen[way].bad += bad
        print("copied, summed    thread us/op  CPU us/op  saved us/op  operations/s   p99 ms  bad")
        for each in seen.values():
            print(each.row(seen[by_caller]))
        print(device_line(engine))


if __name__ == "__main__":
    run(main)
