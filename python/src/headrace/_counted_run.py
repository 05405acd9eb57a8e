# SPDX-License-Identifier: Apache-2.0
"""``headrace run --stats``: start a command, wait for it, and write what its processes counted.

Run as a program, by an interpreter of its own that loads nothing but this file: it has one thread,
so signals come to it and to nobody else, and who sent them is known. The counters lie in a file
without a name that every process of the command maps; however they end, they are there afterwards.
What lies where in it is said in preload/counters.hpp.
"""

import fcntl
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

SCHEMA = {"name": "headrace-run", "version": 1}
EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127

FUNCTIONS = ("memcpy", "memmove", "memset", "memcmp")
PATHS = ("libc", "tuned", "dsa")
DEVICE_COUNTS = ("descriptors", "bytes", "page_faults", "retries", "errors", "lost")
CLASS_COUNT = 64
STRIPE_COUNT = 16

_MAGIC = 0x32544E554F435248
_HEADER = struct.Struct("=7Q8x6Q16x896s")
_CELL = struct.Struct("=4Q")
_STRIPE_BYTES = len(FUNCTIONS) * len(PATHS) * CLASS_COUNT * _CELL.size
COUNTERS_BYTES = _HEADER.size + STRIPE_COUNT * _STRIPE_BYTES

_PASSED_ON = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCONT,
)


def make_counters() -> int:
    """Make the file of the counters, all zero.

    Returns:
        Its descriptor; it is inherited, and nothing else keeps the file.
    """
    descriptor = os.memfd_create("headrace-counters", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, COUNTERS_BYTES)
    os.pwrite(descriptor, struct.pack("=2Q", _MAGIC, COUNTERS_BYTES), 0)
    # Nobody can cut short what others have mapped.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return inherited(descriptor)


def inherited(descriptor: int) -> int:
    """Give a descriptor to the next program, by a number that is not a standard one's.

    Where stdin, stdout or stderr are closed their numbers are the next to be given.
    """
    higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 3)
    os.close(descriptor)
    return higher


def environment_given() -> dict[str, str]:
    """The environment without what the interpreter has put into it for itself."""
    given = dict(os.environ)
    with suppress(OSError):
        # In the C locale the interpreter sets a variable, which its children would inherit.
        names = {
            pair.partition(b"=")[0] for pair in Path("/proc/self/environ").read_bytes().split(b"\0")
        }
        if b"LC_CTYPE" not in names and given.get("LC_CTYPE", "").startswith("C."):
            del given["LC_CTYPE"]
    return given


def cannot_run(word: str, problem: OSError) -> tuple[str, int]:
    """Say why a command cannot be started, and with which exit code that ends."""
    if isinstance(problem, FileNotFoundError):
        return f"cannot run '{word}': there is no such program; check the name", EXIT_NOT_FOUND
    why = os.strerror(problem.errno or 0)
    return f"cannot run '{word}': it cannot be executed ({why}); check the file", EXIT_CANNOT_RUN


def document_of(
    counters: bytes, machine: object, command: list[str], status: int
) -> dict[str, Any]:
    """Add up what was counted.

    Args:
        counters: The file.
        machine: Record of the machine.
        command: What was run.
        status: How it ended, as wait() says it.
    """
    words = _HEADER.unpack_from(counters)
    programs, programs_tuned, _, programs_device = words[2:6]
    device = dict(zip(DEVICE_COUNTS, words[7:-1], strict=True))
    note = words[-1]
    functions = {
        name: {path: _path_document(counters, f, p) for p, path in enumerate(PATHS)}
        for f, name in enumerate(FUNCTIONS)
    }
    every = [path for function in functions.values() for path in function.values()]
    moves = [functions[name] for name in ("memcpy", "memmove")]
    text = note.partition(b"\0")[0].decode(errors="replace")
    return {
        "schema": SCHEMA,
        "machine": machine,
        "results": {
            "command": command,
            "exit_code": None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status),
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "profile": text
            or "no program loaded the library: it is static, has more rights than its user, or "
            "may not open the counters",
            "functions": functions,
            "device": device,
        },
        "summary": {
            "programs": programs,
            "programs_tuned": programs_tuned,
            "programs_device": programs_device,
            "classes_given_up": words[6],
            "calls": sum(path["calls"] for path in every),
            "bytes": sum(path["bytes"] for path in every),
            "seconds": sum(path["seconds"] for path in every),
            "bytes_moved": sum(path["bytes"] for move in moves for path in move.values()),
            "bytes_tuned": sum(move["tuned"]["bytes"] for move in moves),
            "bytes_by_device": device["bytes"],
        },
    }


def _path_document(counters: bytes, function: int, path: int) -> dict[str, Any]:
    lengths = []
    for index in (CLASS_COUNT - 1, *range(CLASS_COUNT - 1)):
        place = _HEADER.size + ((function * len(PATHS) + path) * CLASS_COUNT + index) * _CELL.size
        cells = [
            _CELL.unpack_from(counters, place + stripe * _STRIPE_BYTES)
            for stripe in range(STRIPE_COUNT)
        ]
        calls, byte_count, timed, timed_ns = (sum(column) for column in zip(*cells, strict=True))
        if calls:
            lengths.append(
                {
                    # The last class is that of length zero.
                    "bytes_max": 2 << index if index < CLASS_COUNT - 1 else 0,
                    "calls": calls,
                    "bytes": byte_count,
                    "calls_timed": timed,
                    "seconds": timed_ns / timed * calls * 1e-9 if timed else 0.0,
                }
            )
    return {
        "calls": sum(each["calls"] for each in lengths),
        "bytes": sum(each["bytes"] for each in lengths),
        "seconds": sum(each["seconds"] for each in lengths),
        "lengths": lengths,
    }


def _start(command: list[str], counters: int, mask: set[signal.Signals]) -> int:
    environment = environment_given()
    environment["HEADRACE_COUNTERS"] = f"/proc/{os.getpid()}/fd/{counters}"
    reader, writer = os.pipe()
    # Not posix_spawn: it leaves the C library's internal signals ignored.
    child = os.fork()
    if child == 0:
        _become(command, environment, mask, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        number = pipe.read()
    if number:
        os.waitpid(child, 0)
        raise OSError(int(number), "")
    return child


def _become(
    command: list[str], environment: dict[str, str], mask: set[signal.Signals], writer: int
) -> NoReturn:
    """In the child: take the command's shape, or tell why not."""
    # The interpreter ignores these, and programs expect to be ended by them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - It is the user's.
    except OSError as problem:
        os.write(writer, str(problem.errno or 0).encode())
    os._exit(EXIT_CANNOT_RUN)


def _wait(child: int, signals: set[signal.Signals]) -> int:
    """Wait for the end of a child; what is sent to us alone goes to it, and we stop as it does."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            # Whoever lets us go on may have meant us alone.
            os.kill(child, signal.SIGCONT)
            continue
        if ended:
            return status
        came = signal.sigwaitinfo(signals)
        # What a terminal sends goes to the child as well: it is in the same group.
        if came.si_signo != signal.SIGCHLD and came.si_code <= 0:
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


def _write(path: Path, document: dict[str, Any]) -> None:
    data = (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    mask = os.umask(0)
    os.umask(mask)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o666 & ~mask)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _end_as(status: int) -> NoReturn:
    """End as the child has ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # The child has left the core, if anybody.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else EXIT_CANNOT_RUN)


def _complain(sentence: str) -> None:
    with suppress(OSError):
        os.write(2, f"headrace: {sentence}\n".encode())


def main() -> NoReturn:
    """Run the command that is described by the arguments.

    Arguments: descriptor of the counters, descriptor of a file with the record of the machine, file
    of the statistics, and the command.
    """
    counters, machine_file = int(sys.argv[1]), int(sys.argv[2])
    path, command = Path(sys.argv[3]), sys.argv[4:]
    os.set_inheritable(counters, False)
    os.set_inheritable(machine_file, False)
    signals = {signal.SIGCHLD, *_PASSED_ON}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        child = _start(command, counters, {signal.Signals(number) for number in mask})
    except OSError as problem:
        sentence, code = cannot_run(command[0], problem)
        _complain(sentence)
        os._exit(code)
    status = _wait(child, signals)
    with mmap.mmap(counters, COUNTERS_BYTES, prot=mmap.PROT_READ) as memory:
        counted = memory[:]
    machine = json.loads(os.pread(machine_file, os.fstat(machine_file).st_size, 0))
    try:
        _write(path, document_of(counted, machine, command, status))
    except OSError as problem:
        why = os.strerror(problem.errno or 0)
        _complain(f"cannot write the statistics '{path}': {why}; choose another place")
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            os._exit(1)
    _end_as(status)


if __name__ == "__main__":
    main()
