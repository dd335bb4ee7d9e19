"""A compiler launcher before the cache: if several entries compile one source at once, one compiles, the others wait.

python -I -S once.py LOCKS TORCH CACHE COMPILER ARGUMENT...

A cache knows finished objects, not running compilers. Only sources that include none of torch's headers (below the
folders TORCH, separated by colons) are waited for: the others give another object for each torch. A process that waits
gives its job back to the pool. A wrong guess here only costs time: the cache and the compiler decide what is compiled,
and how.

Where the variable TOKENS names a socket, this also waits for a job of the pool. The process that it becomes keeps the
connection, as do the compilers that it starts: when all of them have ended, the job is given back.
"""

from __future__ import annotations  # types that Python 3.8 lacks

import os
import re
import sys

INCLUDE = re.compile(rb"""^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)""", re.MULTILINE)
SOURCE = (".c", ".cc", ".cpp", ".cxx", ".c++", ".cu")
MOST = 2000  # files that are searched for includes
TOKENS = "HATCH_TORCH_EXT_TOKENS"
REFUSED = 75  # EX_TEMPFAIL of sysexits.h, which no compiler uses


def sees(source: str, near: list[str], system: list[str], torch: list[str]) -> bool:
    """Return whether ``source`` includes a file below ``torch``, directly or by files in the folders ``near`` (``-I``).

    Of the folders ``system`` (``-isystem``), only those of torch are searched.
    """
    queue, known = [source], {source}
    ours = [folder for folder in system if below(folder, torch)]
    while queue:
        path = queue.pop()
        try:
            with open(path, "rb") as stream:
                text = stream.read()
        except OSError:
            continue
        for quote, name in INCLUDE.findall(text):
            beside = [os.path.dirname(path)] if quote == b'"' else []
            for folder in beside + near + ours:
                found = os.path.normpath(os.path.join(folder, os.fsdecode(name)))
                if os.path.isfile(found):
                    if below(found, torch):
                        return True
                    if found not in known and len(known) < MOST:
                        known.add(found)
                        queue.append(found)
                    break
    return False


def below(path: str, folders: list[str]) -> bool:
    """Return whether ``path`` is one of ``folders``, or is in one."""
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def read(command: list[str]) -> tuple[str | None, str | None, list[str], list[str]]:
    """Return the parts of a compiler's command line: source, output, folders of ``-I``, folders of ``-isystem``."""
    source: str | None = None
    output: list[str] = []
    near: list[str] = []
    system: list[str] = []
    places = {"-I": near, "-isystem": system, "-iquote": near, "-o": output}
    following: list[str] | None = None
    for word in command:
        if following is not None:
            following.append(word)
            following = None
        elif word in places:
            following = places[word]
        elif word.startswith("-isystem="):
            system.append(word[9:])
        elif word.startswith("-I"):
            near.append(word[2:])
        elif word.endswith(SOURCE) and not word.startswith("-"):
            source = word
    return source, output[-1] if output else None, near, system


class Fifo:
    """The FIFO of jobs of which Ninja is a client."""

    def __init__(self, path: str) -> None:
        self.path = path

    def give(self) -> None:
        """Lend this process's job to others."""
        self.descriptor = os.open(self.path, os.O_RDWR)
        os.write(self.descriptor, b"+")

    def take(self) -> None:
        """Wait for a job."""
        os.read(self.descriptor, 1)
        os.close(self.descriptor)


class Connection:
    """The socket by which this process itself is a client of the pool."""

    def __init__(self, path: str, output: str) -> None:
        import _socket  # `socket` takes several times as long to import

        self.output = os.fsencode(output)[-4096:]
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)  # messages stay apart
        self.socket.connect_ex(path)  # if the server has ended, `take` will tell
        os.set_inheritable(self.socket.fileno(), True)

    def give(self) -> None:
        """Give this process's job back."""
        self.socket.send(b"-")

    def take(self) -> None:
        """Wait for a job; end this process if there will be none."""
        try:
            self.socket.send(self.output)
            answer = self.socket.recv(1)
        except OSError:
            answer = b""
        if not answer:
            sys.stderr.write("not compiled: another file of this entry failed, or its build has ended\n")
            sys.exit(REFUSED)


def pool() -> Fifo | None:
    """Return the FIFO that MAKEFLAGS name, or None."""
    match = re.search(r"--jobserver-auth=fifo:(\S+)", os.environ.get("MAKEFLAGS", ""))
    return Fifo(match.group(1)) if match else None


def wait(name: str, jobs: Fifo | Connection | None) -> None:
    """Hold the lock ``name`` until this process ends, which becomes the cache."""
    import fcntl

    held = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.set_inheritable(held, True)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if jobs is None:
            return  # a fixed number of jobs: the job of one that waits would be lost
    else:
        return
    jobs.give()
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
    finally:
        jobs.take()


def main(arguments: list[str]) -> None:
    """Wait if need be, and become the cache."""
    locks, torch, command = arguments[0], arguments[1].split(os.pathsep), arguments[2:]
    source, output, near, system = read(command)
    jobs: Fifo | Connection | None = pool()
    try:
        if TOKENS in os.environ:
            jobs = Connection(os.environ[TOKENS], output or command[-1])
            jobs.take()
        if source is not None and output is not None:
            torch += [os.path.realpath(folder) for folder in torch]
            if not sees(source, near, system, torch):
                name = (source + "!" + output).replace("/", "!")[-200:]
                wait(os.path.join(locks, name), jobs)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError:
        pass  # no lock: as without other entries
    os.execvp(command[0], command)  # noqa: S606 -- no shell: what Ninja's gave


if __name__ == "__main__":
    main(sys.argv[1:])
