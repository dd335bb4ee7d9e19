"""Secrets never reach what is written: message, command line, log."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from hatch_torch_ext.base import process, redact
from hatch_torch_ext.base.errors import EntryError, ProcessError

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "it's-S3CRET/+"  # noqa: S105


@pytest.fixture(autouse=True)
def _nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_learned", set())


@pytest.mark.parametrize(
    "name",
    [
        "UV_INDEX_PRIVATE_PASSWORD",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "SSHPASS",
        "MYSQL_PWD",
        "PGPASSWORD",
        "NPM_AUTH",
        "GH_PAT",
        "TWINE_API_KEY",
        "SIGNING_KEY",
    ],
)
def test_names_of_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the process that is named as secrets are: its value is in no message."""
    monkeypatch.setenv(name, SECRET)
    assert redact.clean(f"cannot log in with {SECRET}!") == "cannot log in with ****!"


@pytest.mark.parametrize("name", ["PWD", "KEYBOARD", "GIT_AUTHOR_NAME", "PATH", "MONKEY", "PYTHONPATH", "BYPASSED"])
def test_names_of_no_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that merely look alike hide nothing."""
    monkeypatch.setenv(name, "an ordinary value")
    assert redact.clean("an ordinary value") == "an ordinary value"


@pytest.mark.parametrize("value", ["true", "abc", "123", "", "  ", "/", "/tmp"])  # noqa: S108
def test_what_would_deface_every_line(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain word, a short value, a path that exists: not taken out, whatever the variable is called."""
    monkeypatch.setenv("MY_TOKEN", value)
    assert redact.clean(f"is true of abc 123 in /tmp {value}") == f"is true of abc 123 in /tmp {value}"


@pytest.mark.parametrize(
    "written", [SECRET, shlex.quote(SECRET), json.dumps(SECRET), quote(SECRET, safe=""), f"a\n{SECRET}\nb"]
)
def test_every_way_of_writing_it(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoted for a shell, in JSON, in an address: it is the same secret."""
    monkeypatch.setenv("MY_TOKEN", SECRET)
    assert "S3CRET" not in redact.clean(written)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of an address in any variable is one, alone and in a header; so is a lone user name, a token."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:p%40ssword@host/simple")
    monkeypatch.setenv("UV_INDEX", "https://tok-12345@host/simple")
    said = "p%40ssword p@ssword tok-12345 dXNlcjpwQHNzd29yZA== https://other:unknown@host/ user"
    assert redact.clean(said) == "**** **** **** **** https://****@host/ user"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("http://user:p@ssw0rd@proxy:80/ of", "http://****@proxy:80/ of"),  # as people write it
        ("GET https://host/x.whl?token=S3CRET failed", "GET https://host/x.whl?token=**** failed"),
        ("https://host/x.whl?sv=1&sig=S3%2FCRET&se=2", "https://host/x.whl?sv=1&sig=****&se=2"),
        ("https://host/x?X-Amz-Signature=S3CRET'", "https://host/x?X-Amz-Signature=****'"),
        ("https://host/x?private_token=S3CRET", "https://host/x?private_token=****"),
        ("https://host/x?monkey=an&page=2", "https://host/x?monkey=an&page=2"),
    ],
)
def test_secrets_in_any_address(written: str, shown: str) -> None:
    """What an address says of its user, and a token in its query, is hidden although no variable holds it."""
    assert redact.clean(written) == shown
    assert redact.Cleaner()(written.encode()) == shown.encode()


def test_a_key_of_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is written line by line: each line of a key is hidden."""
    monkeypatch.setenv("SIGNING_KEY", "-----BEGIN-----\nMIIBVgIBADANBg\n-----END-----\n")
    assert redact.Cleaner()(b"now: MIIBVgIBADANBg\n") == b"now: ****\n"


def test_fields_of_the_configuration() -> None:
    """What came in by ``{env:…}`` is a secret, whatever the variable is called."""
    text = 'index-url = "https://host/{env:MY_FOLDER}/simple"\nx = "{env:OTHER:default}"'
    redact.learn_fields([text], {"MY_FOLDER": "k4h5j6", "OTHER": "opaque", "ELSE": "visible"})
    assert redact.clean("k4h5j6 opaque visible") == "**** **** visible"


def test_messages() -> None:
    """An error says no secret, wherever its text comes from."""
    redact.learn(SECRET)
    assert str(EntryError("matrix.2.8", f"uv says: {SECRET}")) == "matrix.2.8: uv says: ****"


def test_log_and_errors_of_programs(tmp_path: Path) -> None:
    """The command line, the changed variables and the output: none shows what the environment of the program holds."""
    log = tmp_path / "log.txt"
    code = (
        "import os, sys; print('out', os.environ['MY_TOKEN'], sys.argv[1]); sys.stderr.write('no newline'); sys.exit(3)"
    )
    changes = {"MY_TOKEN": SECRET, "PIN_TOKEN": "1234", "URL": "https://user:hunter22@host"}
    command = [sys.executable, "-u", "-c", code, SECRET]
    for run in (process.run, lambda command, **more: process.run_logged(command, log, **more)):
        with pytest.raises(ProcessError) as caught:
            run(command, env_changes=changes)
        assert "S3CRET" not in str(caught.value) + caught.value.output
        assert caught.value.output.rstrip("\n").endswith("out **** ****\nno newline")
    text = log.read_text()
    assert "MY_TOKEN=**** PIN_TOKEN=**** URL=https://****@host" in text
    assert "S3CRET" not in text
    assert "hunter22" not in text


def test_captured_output_is_left_alone() -> None:
    """What a program answers as data keeps its values: only messages and logs are cleaned."""
    code = "import os; print(os.environ['MY_TOKEN'])"
    done = process.run([sys.executable, "-c", code], env_changes={"MY_TOKEN": SECRET})
    assert done.stdout == f"{SECRET}\n"


def test_a_program_that_leaves_a_server_behind(tmp_path: Path) -> None:
    """A compiler cache's server keeps the output open: its starter's end is the end."""
    code = "import subprocess, sys; subprocess.Popen(['sleep', '20']); print('started')"
    done = process.run_logged([sys.executable, "-c", code], tmp_path / "log.txt", timeout=10)
    assert done.stdout == "started\n"
    assert done.returncode == 0


def test_a_logged_program_that_takes_too_long(tmp_path: Path) -> None:
    """A program that prints nothing is stopped by its timeout, and its earlier output is in the log."""
    code = "import time; print('began', flush=True); time.sleep(30)"
    with pytest.raises(ProcessError, match=r"ran longer than 0\.5 s"):
        process.run_logged([sys.executable, "-c", code], tmp_path / "log.txt", timeout=0.5)
    assert (tmp_path / "log.txt").read_text().endswith("\nbegan\n")


def test_input() -> None:
    """What is given to a program is its whole input."""
    assert process.run(["cat"], given="lines\nof it\n").stdout == "lines\nof it\n"
    assert process.run(["cat"]).stdout == ""
