# SPDX-License-Identifier: Apache-2.0
"""The GitHub action and the Containerfile: their scripts and packages, and the workflow that the
tutorial shows."""

import os
import re
import subprocess
import textwrap
from pathlib import Path

from .conftest import TIME_LIMIT_S, Emulator

ROOT = Path(__file__).parents[2]
ACTION = (ROOT / "action.yml").read_text()


def script_of(step: str) -> str:
    """The bash script of a step of the action."""
    block = ACTION.split(f"- name: {step}\n", 1)[1].split("    - name: ", 1)[0]
    return textwrap.dedent(block.split("run: |\n", 1)[1])


def packages_of(script: str) -> set[str]:
    installs = re.findall(r"--no-install-recommends ((?:\\\n|[^&>\n])+)", script)
    return {word for each in installs for word in each.replace("\\\n", " ").split()}


def act(emulator: Emulator, command: str, options: str = "") -> subprocess.CompletedProcess[bytes]:
    """The last step of the action, as a runner executes it."""
    words = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script_of("Run the command"))
    variables = {"PROGRAM": str(emulator.program), "OPTIONS": options, "COMMAND": command}
    return subprocess.run(
        [*emulator.prefix, *words],
        capture_output=True,
        check=False,
        cwd="/tmp",
        env=os.environ | emulator.environment | variables,
        timeout=TIME_LIMIT_S,
    )


def test_the_action_runs_a_script_with_options(anybody: Emulator) -> None:
    result = act(anybody, "ls /dev/dsa\nfalse\necho not reached", "--wq shared\n  --devices 2")
    assert result.stdout == b"wq0.0\nwq1.0\n", result.stderr.decode()
    assert result.returncode == 1
    assert act(anybody, "exit 7").returncode == 7


def test_the_action_and_the_tutorial_name_inputs_that_exist() -> None:
    declared = set(re.findall(r"^  ([a-z-]+):\n    description", ACTION, re.MULTILINE))
    used = set(re.findall(r"inputs\.([a-z-]+)", ACTION))
    assert used == {"run", "options", "working-directory"}
    assert declared == used | {"program"}
    tutorial = (ROOT / "docs/tutorials/dsa-in-ci.md").read_text()
    given = tutorial.split("        with:\n", 1)[1].split("      - ", 1)[0]
    assert set(re.findall(r"^ +([a-z-]+): ", given, re.MULTILINE)) <= used
    assert set(re.findall(r"^\| `([a-z-]+)` \|", tutorial, re.MULTILINE)) == used


def test_the_action_and_the_image_install_the_same_to_build() -> None:
    installed = script_of("Install what the emulator needs, and allow it user namespaces")
    stages = (ROOT / "Containerfile").read_text().split("FROM debian:12")
    built = packages_of(stages[1])
    assert packages_of(installed + script_of("Build the emulator")) == built
    bootstrap = (ROOT / "scripts/bootstrap").read_text()
    assert all(re.search(rf"\b{re.escape(name)}(?=[\s)])", bootstrap) for name in built), built


def test_the_action_allows_namespaces_to_the_emulator_alone(tmp_path: Path) -> None:
    asks = 'printf "%s " "$@" >>asked; echo 1'
    stubs = {"apt-get": "", "sysctl": asks, "apparmor_parser": "cat >profile"}
    for name, script in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    step = script_of("Install what the emulator needs, and allow it user namespaces")
    variables = {"SOURCE": str(ROOT), "PROGRAM": "/a b/headrace-emulator"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ("bash", "-eo", "pipefail", "-c", step)
    subprocess.run(words, check=True, cwd=tmp_path, env=os.environ | variables | path)
    profile = (tmp_path / "profile").read_text()
    assert 'profile headrace-emulator "/a b/headrace-emulator" flags=(unconfined) {' in profile
    assert (tmp_path / "asked").read_text().split()[0] == "-n"  # Reads the rule, and leaves it.
