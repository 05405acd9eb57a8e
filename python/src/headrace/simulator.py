# SPDX-License-Identifier: Apache-2.0
"""Predict times on machines that are described in a file: scenarios, a NIC, traced programs.

    from headrace import simulator

    def place(message):
        return simulator.Place(payload="l2" if message.bytes <= 65536 else "memory")

    print(simulator.inject(place, bytes=4096).time_ns)

`headrace sim run FILE.py` runs a scenario of one's own, made by :func:`scenario`. Every figure is
simulated, not measured (docs/concepts/simulator.md).
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace import _simulator
from headrace._core import parse_bytes
from headrace._scenarios import (
    Parameter,
    Result,
    Scenario,
    answer_of,
    find_machine,
    machines,
    run,
    scenarios,
)
from headrace.errors import InvalidArgumentError

__all__ = [
    "Injected",
    "Message",
    "Parameter",
    "Place",
    "Replayed",
    "Result",
    "Scenario",
    "find_machine",
    "inject",
    "machines",
    "parse_bytes",
    "replay",
    "run",
    "scenario",
    "scenarios",
]

_LEVELS = ("memory", "l3", "l2")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that the NIC receives.

    Attributes:
        index: Number of the message, from 0.
        bytes: Its length.
        sender_core: The core that sent it.
        receiver_core: The core that will read it.
    """

    index: int
    bytes: float
    sender_core: int
    receiver_core: int


@dataclass(frozen=True, slots=True)
class Place:
    """What the NIC does with a message.

    Attributes:
        header: Where the first bytes go: "memory", "l3" or "l2".
        payload: Where the rest goes.
        core: The core whose L2 is meant; None: the receiver.
        header_bytes: Length of the header, rounded up to lines.
        nic_ns: Time of the function on the NIC.
        host_ns: Time of what is left to the host.
    """

    header: str = "memory"
    payload: str = "memory"
    core: int | None = None
    header_bytes: float = 64
    nic_ns: float = 0
    host_ns: float = 0


NicFunction = Callable[[Message], Place]


@dataclass(frozen=True, slots=True)
class Injected:
    """The result of :func:`inject`.

    Attributes:
        time_ns: Of one message: receiving it and computing on it.
        memory_lines: Lines read from and written to memory for one message.
    """

    time_ns: float
    memory_lines: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """A traced program on one machine.

    Attributes:
        machine: Name or path of the machine.
        options: As given to :func:`replay`.
        time_s: From the first record to the end of the last thread.
        computing_s: The program's own computing, of all threads, as recorded and scaled.
        moving_s: Time of all threads in operations that they carry out or submit.
        waited_s: Time of all threads that wait.
        bound: "computing", or the resource that is used most; "latency" if none is.
        resources: `name`, `utilisation`, and `full`: the share of time in which flows waited.
        devices: `device`, `submissions`, and `queued_us`: mean time in the queue.
        timeline: By thread and bin, shares of computing, moving and waiting.
        notes: Remarks about the figures.
    """

    machine: str
    options: Mapping[str, object]
    time_s: float
    computing_s: float
    moving_s: float
    waited_s: float
    bound: str
    resources: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    timeline: list[list[list[float]]]
    notes: list[str]


def _native(place: NicFunction) -> Callable[[int, float, int, int], tuple[float, ...]]:
    def call(index: int, size: float, sender: int, receiver: int) -> tuple[float, ...]:
        answer = place(Message(index, size, sender, receiver))
        if not isinstance(answer, Place):
            message = f"it returned {answer!r}, and not a Place"
            raise TypeError(message)
        for level in (answer.header, answer.payload):
            if level not in _LEVELS:
                message = f"'{level}' is not one of {', '.join(_LEVELS)}"
                raise ValueError(message)
        return (
            _LEVELS.index(answer.header),
            _LEVELS.index(answer.payload),
            receiver if answer.core is None else max(-1, answer.core) & 0xFFFFFFFF,
            float(answer.header_bytes),
            float(answer.nic_ns),
            float(answer.host_ns),
        )

    return call


def inject(
    place: NicFunction,
    *,
    machine: str = "injection-node",
    bytes: float = 4096,  # noqa: A002 - the name of the scenario's parameter.
    **options: object,
) -> Injected:
    """Receive messages through a NIC that calls `place` for each, and compute on them.

    Args:
        place: Decides where each message goes.
        machine: Name or path of a record with a NIC.
        bytes: Length of a message.
        options: `messages` of each receiver (8), `cores` (2, the last sends), `receivers` (1),
            `sharing` of caches ("none", "l2", "siblings"), `polled` (True), `protocol_on_nic`
            (True), `read_share` (1), `memory_ratio` (1), `working_bytes` (the machine's).

    Raises:
        InvalidArgumentError: `place` raised or returned nonsense, or there is no such option.
        UnsupportedError: The machine has no NIC.
    """
    allowed = {
        "messages": range(1, 1 << 20),
        "cores": range(1, 257),
        "receivers": range(1, 257),
        "sharing": ("none", "l2", "siblings"),
        "polled": (True, False),
        "protocol_on_nic": (True, False),
        "read_share": None,
        "memory_ratio": None,
        "working_bytes": None,
    }
    for key, value in options.items():
        values = allowed.get(key, ())
        fits = isinstance(value, (int, float)) and value >= 0 if values is None else value in values
        if not fits:
            raise InvalidArgumentError(
                "simulate injection",
                f"there is no option {key}={value!r}",
                f"use {', '.join(allowed)}",
            )
    request = {"machine": str(find_machine(machine)), "bytes": bytes, **options}
    answer = answer_of(_simulator.inject(json.dumps(request), _native(place)))
    return Injected(**answer)


def replay(
    trace: str, runs: Iterable[Mapping[str, object]], *, place: NicFunction | None = None
) -> tuple[dict[str, Any], list[Replayed]]:
    """Predict the time of a traced program; deterministic.

    Args:
        trace: File of HEADRACE_TRACE, start_trace() or `headrace emulate --trace`.
        runs: `machine`, and what is different from the trace: `nodes` (recorded node to node of the
            machine), `copies` (node of the copies of caches), `devices`, `policy`, `path`
            ("recorded", "cpu" or "dsa"), `workers` of a socket, `compute_scale`, `bins` of the
            timeline, `working_bytes` (with `place`).
        place: Messages come through a NIC with this function.

    Returns:
        What the trace has, and a result for each run.

    Raises:
        Error: The trace cannot be used, or does not fit the machine.
    """
    asked = [dict(each) for each in runs]
    request = {
        "trace": trace,
        "runs": [
            each | {"machine": str(find_machine(str(each["machine"]))), "inject": place is not None}
            for each in asked
        ],
    }
    answer = answer_of(
        _simulator.replay(json.dumps(request), _native(place or (lambda _: Place())))
    )
    return answer["trace"], [
        Replayed(str(each.pop("machine")), each, **result)
        for each, result in zip(asked, answer["results"], strict=True)
    ]


def scenario(
    question: str, *, machine: str = "spr-1dsa", **parameters: Iterable[object]
) -> Callable[[Callable[..., Mapping[str, float]]], Scenario]:
    """Make a function a scenario, which `headrace sim run FILE.py` runs with sweeps and pictures.

    The function has the name of the machine's record and a text for each parameter, and returns the
    figures by name.

    Args:
        question: One line about what it answers.
        machine: Default machine.
        parameters: Values of each parameter; the first holds if another one is swept.
    """

    def made(function: Callable[..., Mapping[str, float]]) -> Scenario:
        names = set(inspect.signature(function).parameters) - {"machine"}
        if names != set(parameters):
            raise InvalidArgumentError(
                f"make the scenario '{function.__name__}'",
                f"its function has {sorted(names)}, and the values are of {sorted(parameters)}",
                "give values for each parameter of the function but 'machine'",
            )
        return Scenario(
            function.__name__.replace("_", "-"),
            question,
            machine,
            tuple(
                Parameter(name, "size", tuple(str(each) for each in values), ())
                for name, values in parameters.items()
            ),
            function,
        )

    return made
