# SPDX-License-Identifier: Apache-2.0
"""What every subcommand prints in the same way: complaints, JSON documents, exit codes."""

import json
import sys
from collections.abc import Mapping

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HARDWARE_ABSENT = 3
EXIT_INTERRUPTED = 130


def complain(problem: object) -> None:
    """Print one sentence on stderr."""
    print(f"headrace: {problem}", file=sys.stderr)  # noqa: T201


def print_document(
    name: str,
    version: int,
    *,
    machine: Mapping[str, object],
    results: object,
    summary: Mapping[str, object],
) -> None:
    """Print the document of ``--json``, the same shape for every subcommand.

    Args:
        name: Schema of `results`, for example "headrace-query".
        version: Version of that schema.
        machine: Record of the machine.
        results: Everything that was found out.
        summary: The figures one would quote, flat.
    """
    document = {
        "schema": {"name": name, "version": version},
        "machine": machine,
        "results": results,
        "summary": summary,
    }
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
