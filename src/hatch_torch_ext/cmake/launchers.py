"""How compilers start: with a compiler cache, and a wait for an entry that compiles the same source.

CMake takes launchers from environment variables, so whatever the author sets overrides them: a variable, a cache entry,
a toolchain file, a line of CMakeLists.txt.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process, resources
from hatch_torch_ext.base.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.values import Setup


LANGUAGES = ("C", "CXX", "CUDA")
CACHES = ("ccache", "sccache")
STATISTICS = "ccache.log"
_HITS = ("direct_cache_hit", "preprocessed_cache_hit")

SIZE = "5G"
"""How large the cache of our own ccache may grow, beside the torch SDKs, unless ``CCACHE_MAXSIZE`` is set."""


def words(setup: Setup) -> list[str]:
    """Return the words to put before every compiler call; none without a cache."""
    cache = setup.toolchain.cache
    if cache is None:
        return []
    program = str(cache.program)
    if cache.program.name not in CACHES:
        return [program]
    torch = os.pathsep.join(sorted({str(setup.sdk.prefix), str(setup.torch)}))
    # The entry's own Python, and a copy of the script: an isolated build has ours at a new path each time.
    return [str(setup.environment.python), "-I", "-S", str(script(setup)), str(_locks(setup)), torch, program]


def write(setup: Setup) -> None:
    """Write the script into the entry's folder."""
    if len(words(setup)) > 1:
        shutil.copyfile(resources.FOLDER / "once.py", script(setup))
        _locks(setup).mkdir(exist_ok=True)


def environ(setup: Setup, given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables from which CMake takes launchers; those in ``given`` are the user's, and stay."""
    if not (found := words(setup)):
        return {}
    names = [f"CMAKE_{language}_COMPILER_LAUNCHER" for language in LANGUAGES]
    launchers: dict[str, str | None] = {name: ";".join(found) for name in names if not given.get(name)}
    settings = _settings(setup, given)
    return {**launchers, **settings, **_sloppiness(setup, given, settings)}


def _settings(setup: Setup, given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of our own ccache, except those that the user has set."""
    cache = setup.toolchain.cache
    if cache is None or cache.folder is None or given.get("CCACHE_DIR") or given.get("CCACHE_CONFIGPATH"):
        return {}
    return {"CCACHE_DIR": str(cache.folder), "CCACHE_MAXSIZE": given.get("CCACHE_MAXSIZE") or SIZE}


def _sloppiness(setup: Setup, given: Mapping[str, str], settings: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the setting by which ccache passes over a header's ctime, beside what it passes over with ``settings``.

    While an entry is compiled, the next SDK is fetched, and shares equal headers with it by hard links, which change
    their ctime. ccache would take them for edited, compile the source once more, and keep nothing.
    """
    cache = setup.toolchain.cache
    if cache is None or not cache.ccache:
        return {}
    known = given.get("CCACHE_SLOPPINESS", "")
    changes = {**dict(setup.entry.env_vars), **settings}
    with contextlib.suppress(ProcessError):
        known = process.run([cache.program, "--get-config", "sloppiness"], env_changes=changes).stdout
    names = [*re.findall(r"[^\s,]+", known), "include_file_ctime"]
    return {"CCACHE_SLOPPINESS": ",".join(dict.fromkeys(names))}


@contextlib.contextmanager
def counted(setup: Setup, cached: Callable[[int, int], None]) -> Iterator[dict[str, str | None]]:
    """Provide the variables by which ccache logs its statistics, and pass hits and lookups to ``cached`` afterwards."""
    cache = setup.toolchain.cache
    if cache is None or not cache.ccache or setup.entry.environ(os.environ).get("CCACHE_STATSLOG"):
        yield {}
        return
    log = setup.folder / STATISTICS
    log.unlink(missing_ok=True)
    try:
        yield {"CCACHE_STATSLOG": str(log)}
    finally:
        with contextlib.suppress(OSError):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            hits = sum(line in _HITS for line in lines)
            cached(hits, hits + lines.count("cache_miss"))


def script(setup: Setup) -> Path:
    """Return the script that waits, by which commands with it are known."""
    return setup.package / "once.py"


def _locks(setup: Setup) -> Path:
    return setup.folder.parent / "compiling"
