"""What is shown while bytes come: a bar on a terminal, nothing elsewhere, and never an error about a second bar."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

PROGRAM = """
import sys, time
from hatch_torch_ext.sdk import fetch
with fetch.progress("torch 2.8.0", 1000) as first, fetch.progress("torch 2.9.0", 1000) as second:
    first(400)
    second(700)
    print("plain words", file=sys.stderr)
    time.sleep(0.3)
print("over", file=sys.stderr)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(program: str) -> str:
    """Return what ``program`` writes to a terminal that is its stderr, without colours and movements."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "80"}) as running:
        os.close(theirs)
        written = b""
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not data:
                break
            written += data
    os.close(ours)
    assert running.returncode == 0
    return ESCAPES.sub("", written.decode())


def test_a_terminal_shows_the_bytes() -> None:
    """The title, how much of how much; a second bar does no harm; lines written meanwhile stay whole."""
    shown = on_a_terminal(PROGRAM)
    assert "torch 2.8.0" in shown
    assert "0.4/1.0 kB" in shown
    assert "plain words\r\n" in shown
    assert shown.endswith("over\r\n")


def test_a_pipe_gets_no_bar() -> None:
    """A log holds only the plain lines."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stderr == "plain words\nover\n"
