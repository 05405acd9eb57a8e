# SPDX-License-Identifier: Apache-2.0
"""The baseline: DuckDB answers the same query from the same file, in a child process.

The child keeps its memory and threads apart from this process. It holds its table in memory, sleeps
between runs, and times execution and fetch itself. Requests and answers are JSON lines over pipes.
It exits when its input ends, so it cannot outlive its parent.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from headrace._closing import Closing
from headrace._signals import held, kill_child, undone_at_signals
from headrace.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """One run of the query in DuckDB."""

    answer: Decimal
    time_ns: int


class Baseline(Closing):
    """DuckDB with lineitem in memory; a context manager that ends the process.

    Threading: confined.
    """

    def __init__(self, path: Path, thread_count: int) -> None:
        """Start DuckDB and load the columns of `path`."""
        self._kept = ExitStack()
        with held():
            self._child = subprocess.Popen(
                [sys.executable, "-m", "headrace_lab.tpch.duckdb_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Its own process group, so that only the parent gets the terminal's SIGINT.
                process_group=0,
            )
            self._kept.enter_context(undone_at_signals(partial(kill_child, self._child.pid)))
        try:
            self.version = str(
                self._ask(load=str(path.resolve()), thread_count=thread_count)["version"]
            )
        except BaseException:
            self.close()
            raise

    def run(self) -> BaselineRun:
        """Run the query once."""
        answer = self._ask(run=True)
        return BaselineRun(Decimal(answer["answer"]), int(answer["time_ns"]))

    def close(self) -> None:
        """End the process. Idempotent."""
        self._child.kill()
        self._child.communicate()
        self._kept.close()

    def _ask(self, **request: object) -> dict[str, Any]:
        requests, answers = self._child.stdin, self._child.stdout
        if requests is None or answers is None or requests.closed:
            raise _failed("it has been closed")
        try:
            requests.write(json.dumps(request) + "\n")
            requests.flush()
        except BrokenPipeError as problem:
            raise _failed("its process has ended") from problem
        line = answers.readline()
        if not line:
            raise _failed("its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _failed(str(answer["error"]))
        return answer


def _failed(cause: str) -> UnsupportedError:
    return UnsupportedError("compare with DuckDB", cause, "use --no-compare to go without")
