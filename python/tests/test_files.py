# SPDX-License-Identifier: Apache-2.0
"""Files of commands: links, devices, pipes, full disks and places that may not be used."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S, Here

from headrace import _signals
from headrace._files import Output, is_there, read_file, write_file
from headrace._samples import machine_path
from headrace._temporary import temporary_folder
from headrace.errors import (
    CapacityExceededError,
    Error,
    InvalidArgumentError,
    IoFailedError,
    NotFoundError,
    PermissionDeniedError,
)

OTHER_USER = 65534
TRIED = "write the test"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Have file permissions checked as for the user nobody, if this is root."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(OTHER_USER)
    os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user can reach and only root, or this user, can write."""
    path = Path("/tmp") / f"headrace-test-{os.getpid()}"  # noqa: S108 - Its parents are for all.
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "a", "text\n", TRIED)
    finally:
        os.umask(mask)
    assert (tmp_path / "a").read_text() == "text\n"
    assert mode_of(tmp_path / "a") == 0o640
    assert names_in(tmp_path) == ["a"]


def test_a_file_keeps_its_mode_and_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, OTHER_USER, OTHER_USER)
    write_file(path, "new", TRIED)
    assert path.read_text() == "new"
    assert mode_of(path) == 0o600
    assert path.stat().st_uid == (OTHER_USER if os.geteuid() == 0 else os.geteuid())


def test_opening_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with Output(path, TRIED), Output(tmp_path / "new", TRIED):
        assert names_in(tmp_path) == ["a"]
    assert path.read_text() == "old"


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("old")
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "dangling").symlink_to("there/later")
    for name in ("link", "dangling"):
        write_file(tmp_path / name, "new", TRIED)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "new"
    assert names_in(tmp_path / "there") == ["file", "later"]


def test_every_name_of_a_file_sees_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a longer text than the new one")
    (tmp_path / "b").hardlink_to(path)
    write_file(path, "new", TRIED)
    assert (tmp_path / "b").read_text() == "new"


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(IoFailedError):
        write_file(tmp_path / "loop", "text", TRIED)
    assert (tmp_path / "loop").is_symlink()


def test_a_pipe_gets_the_bytes_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(path.read_text()))
    reader.start()
    write_file(path, "text" * 100_000, TRIED)
    reader.join()
    assert got == ["text" * 100_000]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_devices_are_written_and_stay() -> None:
    write_file("/dev/null", "text", TRIED)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(CapacityExceededError, match="no space left"):
        write_file("/dev/full", "text", TRIED)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@needs_root
def test_a_device_node_is_not_replaced(tmp_path: Path) -> None:
    node = tmp_path / "null.svg"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        write_file(node, "text", TRIED)
    except PermissionError:
        pytest.skip("this container makes no device nodes")
    assert stat.S_ISCHR(node.stat().st_mode)


@needs_root
def test_a_disk_is_refused(tmp_path: Path) -> None:
    node = tmp_path / "disk"
    try:
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(7, 250))
    except PermissionError:
        pytest.skip("this container makes no device nodes")
    with pytest.raises(InvalidArgumentError, match="it is a disk"):
        Output(node, TRIED)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("", InvalidArgumentError),
        ("a\0b", InvalidArgumentError),
        (".", InvalidArgumentError),
        ("none/", InvalidArgumentError),
        ("none/file", NotFoundError),
        ("file/below", Error),
        ("/proc/a.json", Error),
        ("/sys/kernel/a.json", Error),
        ("x" * 300, IoFailedError),
    ],
)
def test_what_cannot_be_a_file_is_refused_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Error]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(kind):
        Output(name, TRIED)
    assert names_in(tmp_path) == ["file"]


def test_another_user_may_not_write_and_learns_it_first(reachable: Path) -> None:
    (reachable / "file").write_text("old")
    (reachable / "file").chmod(0o444)
    reachable.chmod(0o555)
    with as_nobody():
        for path in (reachable / "file", reachable / "new"):
            with pytest.raises(PermissionDeniedError):
                Output(path, TRIED)
    reachable.chmod(0o755)
    assert names_in(reachable) == ["file"]
    assert (reachable / "file").read_text() == "old"


@needs_root
def test_a_file_in_a_directory_of_another_is_written_where_it_is(reachable: Path) -> None:
    path = reachable / "file"
    path.write_text("something longer")
    path.chmod(0o666)
    with as_nobody():
        write_file(path, "new", TRIED)
    assert path.read_text() == "new"
    assert mode_of(path) == 0o666
    assert path.stat().st_uid == 0


@needs_root
def test_what_cannot_be_looked_at_is_an_error_and_not_absent(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with as_nobody():
        with pytest.raises(PermissionDeniedError):
            is_there(tmp_path / "a" / "b", TRIED)
        with pytest.raises(PermissionDeniedError):
            read_file(tmp_path / "a", TRIED, 10)
    assert not is_there(tmp_path / "a" / "b", TRIED)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), tmp_path / "a\0b"):
        with pytest.raises(InvalidArgumentError):
            read_file(path, TRIED, 10)
    with pytest.raises(NotFoundError):
        read_file(tmp_path / "none", TRIED, 10)
    (tmp_path / "long").write_bytes(b"x" * 11)
    with pytest.raises(CapacityExceededError):
        read_file(tmp_path / "long", TRIED, 10)


_ON_A_SMALL_DISK = """
import os, sys
from headrace._files import Output
from headrace.errors import CapacityExceededError

for name in ("replaced", "overwritten"):
    with open(name, "w") as file:
        file.write("old")
os.link("overwritten", "other name")
for name in ("replaced", "overwritten", "new"):
    try:
        with Output(name, "write the test") as output:
            output.write("x" * (1 << 20))
    except CapacityExceededError as error:
        assert "no space left" in str(error), error
    else:
        raise AssertionError(name)
assert sorted(os.listdir()) == ["other name", "overwritten", "replaced"], os.listdir()
for name in ("replaced", "overwritten"):
    assert open(name).read() == "old", name
"""


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    script = (
        f"mount -t tmpfs -o size=64k none '{tmp_path}' && cd '{tmp_path}' && exec \"$@\" || exit 1"
    )
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    works = subprocess.run(
        [*unshare, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=False, capture_output=True
    )
    if works.returncode != 0:
        pytest.skip(f"no file systems can be mounted here: {works.stderr.decode().strip()}")
    done = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", sys.executable, "-c", _ON_A_SMALL_DISK],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr


OUTPUTS = [
    ("topo", "--record", "{}"),
    ("doctor", "--record", "{}"),
    ("dsa", "configure", "--replay", "{healthy}", "--output", "{}"),
    ("tune", "--output", "{}"),
    ("query", "--plot", "{}.svg"),
    ("sql", "--plot", "{}.svg"),
    ("query", "--data-dir", "{}"),
    ("bench", "copy", "--plot", "{}.png"),
    ("bench", "injection", "--plot", "{}.svg"),
    ("bench", "pmem", "--directory", "{}"),
    ("run", "--stats", "{}", "--", "true"),
    ("pmem", "ring", "produce", "{}", "--count", "1"),
    ("pmem", "ring", "consume", "{}", "--no-wait"),
]
INPUTS = [
    ("topo", "--replay", "{}"),
    ("doctor", "--replay", "{}"),
    ("dsa", "list", "--replay", "{}"),
    ("query", "--data", "{}"),
    ("bench", "copy", "--profile", "{}"),
    ("pmem", "ring", "info", "{}"),
]
HEALTHY = Path(machine_path("healthy"))


@needs_root
@pytest.mark.parametrize("words", [*OUTPUTS, *INPUTS], ids=lambda words: " ".join(words[:3]))
def test_what_may_not_be_used_is_one_sentence(
    here: Here, tmp_path: Path, reachable: Path, words: tuple[str, ...]
) -> None:
    tmp_path.chmod(0o700)
    (reachable / "healthy.json").write_bytes(HEALTHY.read_bytes())
    where = {"healthy": reachable / "healthy.json"}
    with as_nobody():
        result = here(*(word.format(tmp_path / "x", **where) for word in words))
    assert result.code in {1, 2}
    assert not result.stdout
    assert result.stderr.startswith("headrace: ")
    assert result.stderr.count("\n") == 1
    assert "; " in result.stderr, "what to do about it"
    assert not names_in(tmp_path)


@pytest.mark.parametrize(
    "words", [("topo",), ("doctor", "--replay", str(HEALTHY))], ids=lambda words: words[0]
)
def test_a_dash_is_stdout_and_the_record_is_all_that_is_printed(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = here(words[0], "--record", "-")
    assert not names_in(tmp_path)
    record = tmp_path / "record"
    record.write_text(recorded.stdout)
    replayed = here(words[0], "--replay", str(record), "--json")
    assert replayed.stdout, replayed.stderr
    refused = here(words[0], "--record", "-", "--json")
    assert refused.code == 2
    assert "'-' is stdout, and so is --json" in refused.stderr


def test_the_file_that_stdout_goes_to_gets_the_record(command_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to("/dev/stdout")
    words = [str(command_path), "topo", "--record", str(tmp_path / "link")]
    with out.open("wb") as file:
        subprocess.run(
            [command_path, "topo", "--record", tmp_path / "link"], stdout=file, check=True
        )
    assert out.read_text().startswith("{")
    assert (tmp_path / "link").is_symlink()
    piped = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    assert piped.stdout.startswith(b"{")


def test_a_temporary_folder_does_not_survive_a_signal(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            _signals.end_at_signals()
            with temporary_folder("folder-", tmp_path) as folder:
                (folder / "file").write_bytes(b"1")
                signal.raise_signal(signal.SIGTERM)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
