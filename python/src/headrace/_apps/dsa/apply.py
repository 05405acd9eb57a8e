# SPDX-License-Identifier: Apache-2.0
"""Loads a configuration by accel-config, saves the old one, and verifies the result.

accel-config's exit code is not trusted: it skips enabled devices and reports success. Whether a
step worked is read from sysfs. Devices are disabled by a separate command, not by the option -f,
which in 3.5.3 leaves a stale errno that makes accel-config take the next 0 for an error.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._apps.dsa.configuration import (
    Configuration,
    present,
    queue_attributes,
    queues_in,
    to_text,
)
from headrace._apps.dsa.status import explain_command_status
from headrace._facts import Device, Facts, Queue
from headrace._files import write_file
from headrace._temporary import run_child, temporary_folder
from headrace.errors import (
    CapacityExceededError,
    HardwareAbsentError,
    IoFailedError,
    NotFoundError,
)

_TIME_LIMIT_S = 120
_TRIED = "apply the configuration"


@dataclass(frozen=True, slots=True)
class Step:
    """One step and its result."""

    what: str
    done: bool
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Undo:
    """How to restore the previous configuration.

    Attributes:
        path: File with that configuration; None if nothing was configured.
    """

    path: Path | None
    commands: tuple[str, ...]


def check_applicable(configuration: Configuration, facts: Facts) -> None:
    """Check the preconditions; changes nothing."""
    by_name = {device.name: device for device in facts.devices or ()}
    for name in [device["dev"] for device in configuration]:
        device = by_name.get(name)
        if device is None:
            there = ", ".join(by_name) or "no DSA bound to its driver"
            raise HardwareAbsentError(
                _TRIED, f"{name} is not in this machine, which has {there}", "see 'headrace doctor'"
            )
        used = [queue.name for queue in device.queues or () if queue.clients]
        if used:
            raise CapacityExceededError(
                _TRIED, f"{', '.join(used)} of {name} is in use", "stop the programs that use it"
            )
    if not facts.accel_config.program:
        raise NotFoundError(
            _TRIED, "the program accel-config is not installed", "install the package accel-config"
        )


def save_undo(configuration: Configuration, facts: Facts, path: Path) -> Undo:
    """Save the present configuration of the devices that will change.

    An existing file is not replaced: it may hold the configuration before an earlier change.
    """
    names = {device["dev"] for device in configuration}
    before = [device for device in present(facts) if device["dev"] in names]
    commands = [f"accel-config disable-device {name}" for name in sorted(names)]
    if not before:
        return Undo(None, tuple(commands))
    tried = f"save the present configuration in {path}"
    if os.path.lexists(path):
        raise IoFailedError(tried, "the file exists", "choose another by --undo, or move it away")
    write_file(path, to_text(before), tried)
    commands.append(f"accel-config load-config -c {shlex.quote(str(path.absolute()))} -e")
    return Undo(path, tuple(commands))


def apply(
    configuration: Configuration, facts: Facts, read_again: Callable[[], Facts]
) -> list[Step]:
    """Load the configuration and enable its devices and WQs.

    Returns:
        All steps; failed ones with their cause.
    """
    names = {device["dev"] for device in configuration}
    program = facts.accel_config.program or "accel-config"
    steps = []
    for device in facts.devices or ():
        if device.name in names and device.state == "enabled":
            steps.append(_step([program, "disable-device", device.name]))
            if not steps[-1].done:
                return steps
    with temporary_folder("headrace-dsa-") as folder:
        path = folder / "wanted.conf"
        path.write_text(to_text(configuration))
        steps.append(_step([program, "load-config", "-c", str(path), "-e"]))
    return steps + _seen(configuration, read_again())


def _step(arguments: list[str]) -> Step:
    """Run accel-config once."""
    code, said = _run(arguments)
    words = [argument for argument in arguments[1:] if not argument.endswith(".conf")]
    clause = f"accel-config {' '.join(word for word in words if word != '-c')}"
    return Step(clause, code == 0, "" if code == 0 else _explained(said, code))


def _run(arguments: list[str]) -> tuple[int, str]:
    """Run a program; return its exit code and its output."""
    tried = f"run {arguments[0]}"
    try:
        done = run_child(arguments, timeout_s=_TIME_LIMIT_S, env=os.environ | {"LC_ALL": "C"})
    except OSError as problem:
        cause = "it cannot be started"
        remedy = "install the package accel-config"
        raise IoFailedError(tried, cause, remedy, problem.errno or 0) from None
    except subprocess.TimeoutExpired:
        cause = f"it did not end within {_TIME_LIMIT_S} s"
        raise IoFailedError(tried, cause, "look at 'dmesg | grep idxd'") from None
    return done.returncode, done.stdout + done.stderr


def _explained(said: str, code: int) -> str:
    """Join accel-config's errors to one clause, with a remedy for the common ones."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    complaints = [line for line in lines if not line.startswith(("Enabling", "Warning"))]
    text = "; ".join(complaints[:4]) or f"exit code {code}"
    if re.search("Permission denied|Operation not permitted", text):
        text += " (run it as root)"
    elif "kernel module not loaded" in text:
        text += " (see 'headrace doctor')"
    return text


def _seen(configuration: Configuration, facts: Facts) -> list[Step]:
    """Compare the configuration with the machine's state, a step for each device and WQ."""
    by_name = {device.name: device for device in facts.devices or ()}
    steps = []
    for wanted in configuration:
        device = by_name.get(wanted["dev"], Device(wanted["dev"]))
        refusal = explain_command_status(device.cmd_status) or "it was not reached"
        enabled = device.state == "enabled"
        steps.append(Step(f"enable {device.name}", enabled, "" if enabled else refusal))
        there = {queue.name: queue for queue in device.queues or ()}
        for _, asked in queues_in([wanted]):
            queue = there.get(asked["dev"], Queue(asked["dev"]))
            cause = _differing(asked, queue) if queue.state == "enabled" else refusal
            steps.append(Step(f"configure and enable {queue.name}", not cause, cause))
    return steps


def _differing(asked: dict[str, Any], queue: Queue) -> str:
    """The attributes of a WQ that differ from the request; "" if none."""
    shown = queue_attributes(queue)
    return "; ".join(
        f"{key} is {shown.get(key, 'unknown')} and not {value}"
        for key, value in asked.items()
        if shown.get(key) != value and not (key == "threshold" and asked["mode"] != "shared")
    )
