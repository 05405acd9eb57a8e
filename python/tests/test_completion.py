# SPDX-License-Identifier: Apache-2.0
"""Completion of command lines in bash, at a terminal; and the man pages."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the packages install, made from the help of the command of this tree."""
    folder = tmp_path_factory.mktemp("share")
    program = ROOT / "packaging" / "command_files.py"
    subprocess.run(
        [sys.executable, str(program), str(folder)],
        check=True,
        timeout=TIME_LIMIT_S,
    )
    return folder / "share"


@contextmanager
def shell(share: Path, folder: Path, command_path: Path) -> Iterator[int]:
    """A bash at a terminal with the completion loaded; give the terminal's other end."""
    script = share / "bash-completion/completions/headrace"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(  # noqa: S606 - It is the shell that is tested.
            "bash",
            ["bash", "--noprofile", "--norc", "-i"],
            {
                "PATH": f"{command_path.parent}:{os.environ['PATH']}",
                "TERM": "dumb",
                "PS1": "$ ",
                "COLUMNS": "200",
            },
        )
    try:
        os.write(
            terminal, f"source '{script}'; bind 'set bell-style none'; echo rea''dy\n".encode()
        )
        shown_until(terminal, "ready\r\n")
        yield terminal
    finally:
        os.write(terminal, b"\x03\x15exit\n")
        os.close(terminal)
        os.waitpid(child, 0)


def shown_until(terminal: int, words: str) -> str:
    """What the shell shows, up to these words."""
    shown = ""
    end = time.monotonic() + TIME_LIMIT_S
    while words not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, shown
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    "typed, completed",
    [
        ("headrace emu", "headrace emulate "),
        ("headrace topo --rec", "headrace topo --record "),
        ("headrace pmem ring inf", "headrace pmem ring info "),
        ("headrace topo --replay mach", "headrace topo --replay machine.json "),
        ("headrace emulate -- prog", "headrace emulate -- program "),
        ("headrace query --path d", "headrace query --path dsa "),
    ],
)
def test_tab_completes(
    share: Path, tmp_path: Path, command_path: Path, typed: str, completed: str
) -> None:
    (tmp_path / "machine.json").touch()
    (tmp_path / "program").touch(mode=0o755)
    with shell(share, tmp_path, command_path) as terminal:
        os.write(terminal, f"{typed}\t".encode())
        assert completed in shown_until(terminal, completed)


def test_every_command_has_a_man_page(share: Path) -> None:
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert {"headrace.1", "headrace-emulate.1", "headrace-pmem-ring-info.1"} <= pages
    for path in (share / "man/man1").iterdir():
        text = path.read_text()
        assert text.startswith(".TH ")
        for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
            assert f".SH {title}\n" in text, path.name
    assert "\n\\fB\\-\\-seed\\fP S\n" in (share / "man/man1/headrace-emulate.1").read_text()
