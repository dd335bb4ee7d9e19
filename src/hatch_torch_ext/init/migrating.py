"""The steps of a migration: a setuptools project -> the files that ``init`` writes into it, and notes on the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cmake import failures
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import assembling, differing, keeping, recording, texts
from hatch_torch_ext.init.first_matrix import CHOSEN
from hatch_torch_ext.init.recording import Note
from hatch_torch_ext.init.texts import PYPROJECT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hatch_torch_ext.init.first_matrix import Wanted
    from hatch_torch_ext.init.migration import Migration
    from hatch_torch_ext.init.recording import Recording


def migrate(
    root: Path,
    *,
    extra: Sequence[str] = (),
    arguments: Sequence[str] = (),
    timeout: float = recording.TIMEOUT,
    wanted: Wanted = CHOSEN,
    split: bool = False,
) -> Migration:
    """Return the files that ``init`` writes for the project in ``root``.

    ``extra``, ``arguments`` and ``timeout`` are for its ``setup.py``, as in ``recording``; ``split`` splits modules
    that also register operators. Raises ``ConfigurationError``.
    """
    if not (root / "setup.py").is_file() and keeping.is_project(root):
        kept, package, metadata = keeping.of_pyproject(root)
        return assembling.keep(root, kept, package, metadata, (), wanted=wanted, made_of=PYPROJECT)
    recording.require(root)
    texts.document(root)
    with recording.environment(root, extra) as python:

        def recorded(release: str) -> tuple[Recording | None, Recording | None, list[Note]]:
            return _recordings(root, python, arguments, timeout, release)

        newest = max(wanted.torch, key=releases.minor_of) if wanted.torch else recording.NEWEST
        cpu, cuda, notes = recorded(newest)
        migration = assembling.assemble(root, cpu, cuda, notes, wanted=wanted, split=split)
        others = [each for each in migration.torch if each != newest]
        more = differing.notes((cpu, cuda), newest, others, recorded)
        return replace(migration, notes=tuple(dict.fromkeys([*migration.notes, *more])))


def _recordings(
    root: Path, python: Path, arguments: Sequence[str], timeout: float, release: str
) -> tuple[Recording | None, Recording | None, list[Note]]:
    """Return the recordings without and with CUDA; one that ``setup.py`` refuses is None, and noted.

    Submodules of git that were not fetched are noted too.
    """
    cpu: Recording | None
    cuda: Recording | None
    notes = []
    try:
        cpu, cuda = recording.record(root, arguments=arguments, timeout=timeout, torch=release, python=python)
    except recording.RecordingError as error:
        if error.other is None:
            if empty := failures.empty_submodules(root):
                raise ConfigurationError([f"{error}\n{empty}"]) from error
            raise
        cpu, cuda = (None, error.other) if error.backend == "cpu" else (error.other, None)
        kept = "only with CUDA" if cpu is None else "only for the CPU"
        notes.append(Note(line=error.line, text=f"{error}; the project is carried over {kept}"))
    if empty := failures.empty_submodules(root):
        notes.append(Note(line=0, text=empty))
    return cpu, cuda, notes
