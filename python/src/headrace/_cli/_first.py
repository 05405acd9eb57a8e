# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace`` alone: this machine, what Headrace can do on it, what to try first."""

from collections.abc import Iterator
from importlib.util import find_spec

import click

from headrace import _core
from headrace._words import counted
from headrace.machine import Machine, topo

_LABEL_WIDTH = 15
_COMMAND_WIDTH = 41
_QUERY_NEEDS = ("duckdb", "matplotlib")  # Not in the Debian package.


def show() -> None:
    for line in lines(topo(), profile_note()):
        click.echo(line)


def profile_note() -> str:
    """The path of this user's copy profile; empty without one."""
    used, path, _ = _core.use_default_copy_profile()
    _core.use_no_copy_profile()
    return path if used else ""


def lines(machine: Machine, profile: str) -> Iterator[str]:
    """Yield ten lines of at most 80 columns, unless a name is wider."""
    cpu_count = sum(len(node.cpus) for node in machine.nodes)
    memory = sum(node.capacity_bytes for node in machine.nodes)
    yield f"Headrace {_core.version()}: asynchronous memory copies, and a cache near the readers"
    yield _fact("Machine", f"{machine.cpu_model or 'unknown processor'}")
    yield _fact(
        "Memory",
        f"{_core.bytes_text(memory)} in {counted(len(machine.nodes), 'node')}, "
        f"{counted(cpu_count, 'processor')}; {_faster(machine)}",
    )
    yield _fact("DSA", _devices(machine))
    yield _fact("Copies", f"tuned by {profile}" if profile else "not tuned yet: memmove is used")
    yield ""
    query = ("headrace query --scale-factor 0.1", "prefetch for TPC-H query 6")
    topo = ("headrace topo", "show the nodes and what moves data")
    devices = ("headrace dsa list", "show the DSA devices and their queues")
    emulated = ("headrace emulate -- headrace dsa list", "run a program on emulated DSAs")
    for command, does in (
        query if all(map(find_spec, _QUERY_NEEDS)) else topo,
        devices if machine.dsa_devices else emulated,
        ("headrace run -- CMD", "run a program with tuned copies")
        if profile
        else ("headrace tune", "find the fastest copies"),
    ):
        yield f"{command:{_COMMAND_WIDTH}}{does}"
    yield "'headrace --help' lists all commands, 'headrace doctor' explains the DSA."


def _fact(label: str, text: str) -> str:
    return f"{label:{_LABEL_WIDTH}}{text}"


def _faster(machine: Machine) -> str:
    if not machine.has_faster_node():
        return "all equally fast"
    nodes = sorted({each for node in machine.nodes for each in machine.faster_nodes(node.id)})
    return f"{counted(len(nodes), 'node')} faster than local"


def _devices(machine: Machine) -> str:
    if not machine.dsa_devices:
        return "none: 'headrace emulate' gives programs one"
    queues = [queue for device in machine.dsa_devices for queue in device.queues]
    ready = sum((queue.state, queue.type) == ("enabled", "user") for queue in queues)
    return (
        f"{counted(len(machine.dsa_devices), 'device')}, {counted(ready, 'queue')} ready for "
        "programs"
    )
