"""Builds a variant at first use, from the sources in the package, or finds one that was built here before.

Written by hatch-torch-ext; the same in every package that holds its sources. ``_variants.py``, one folder up, runs this
file if no compiled variant fits, and puts itself into it as ``loader``.

1. What the user and the author allow, and where builds are kept.
2. A build that exists: found by a name that needs no compiler, and loaded only if nobody else can have written it.
3. A new build: in another process, by hatch-torch-ext.
4. Commands: build now, list, remove.

The syntax is that of Python 3.8.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    from hatch_torch_ext.resources import _variants as loader
    from hatch_torch_ext.resources._variants import Choice, Facts, Variant

# 1. What is allowed, and where ----------------------------------------------------------------------------------------


_ELSEWHERE = "Name a folder of your own: TORCH_EXT_BUILD_CACHE=/path/to/folder"


def instead(choice: Choice, *, must: bool) -> Choice:
    """Return the choice of an earlier build or, with ``must``, of a new one; else the given choice."""
    if permission() is False:
        return choice
    variant = _find_built(choice.here)
    if variant is None and must and permission():
        variant = _build(choice)
    return choice if variant is None else _with(choice, variant)


def permission() -> Optional[bool]:
    """Return whether the user, else the author, allows a build; None if only an earlier build may be used."""
    variable, value = loader._setting("BUILD")
    if os.environ.get(variable, "").lower() in loader._NO:
        return False
    return True if value or loader.DATA["fallback"]["default"] else None


def _cache() -> str:
    """Return the folder for builds on this machine, "" if none can be named."""
    named = os.environ.get("TORCH_EXT_BUILD_CACHE", "")
    if named:
        return os.path.realpath(os.path.expanduser(named))  # a Dockerfile's ENV leaves "~" as it is
    folder = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    return os.path.realpath(os.path.join(folder, "hatch-torch-ext", "first-use")) if os.path.isabs(folder) else ""


def _of_others() -> str:
    """Return what to do about a cache that this user cannot read, such as one of an administrator; else ""."""
    folder = _cache()
    if not os.path.isdir(folder) or os.access(folder, os.R_OK | os.X_OK):
        return ""
    import shlex

    command = f"chmod -R a+rX {shlex.quote(folder)}"
    return f"What was built in {loader._plain(folder, 400)} cannot be read by this user; its owner allows it: {command}"


# 2. A build that exists -----------------------------------------------------------------------------------------------

_ENVIRON = (  # variables that affect what is compiled; a * is any text
    *("ASM", "ASMFLAGS", "ASM_NASM", "ASM_NASMFLAGS", "CARGO_BUILD_INCREMENTAL", "CARGO_BUILD_RUSTC"),
    *("CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "CARGO_INCREMENTAL", "CARGO_PROFILE_*"),
    *("CARGO_TARGET_*_LINKER", "CARGO_TARGET_*_RUSTFLAGS", "CC", "CFLAGS", "CMAKE_BUILD_TYPE", "CPPFLAGS", "CUDAARCHS"),
    *("CUDAFLAGS", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "CXX", "CXXFLAGS", "FC", "FFLAGS", "ISPC", "ISPCFLAGS"),
    *("LDFLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "OBJC", "OBJCFLAGS", "OBJCXX"),
    *("OBJCXXFLAGS", "RUSTC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "TORCH_CUDA_ARCH_LIST"),
)


def _names(here: Facts) -> Tuple[str, str]:
    """Return the two parts of the view's name: a hash of what must agree, and one of the compilers and GPUs.

    Without a compiler on this machine, a view whose second part differs is used too.
    """
    import hashlib

    import torch

    folder = os.path.dirname(os.path.abspath(str(torch.__file__)))
    must = [loader.DATA["distribution"], loader.DATA["package"], loader.DATA["fallback"]["digest"], folder]
    must += [str(here[name]) for name in ("torch", "backend", "cxx11_abi", "python", "machine", "libc")]
    must += [str(getattr(torch.version, "git_version", "")), str(getattr(torch.version, "hip", ""))]
    tools = [*_programs(here), *_gpus(here), *_variables()]
    first, second = (hashlib.sha256("\0".join(each).encode("utf-8", "replace")).hexdigest() for each in (must, tools))
    return f"{_distribution()}-{first[:24]}", second[:16]


def _variables() -> List[str]:
    """Return the variables that affect what is compiled, with their values."""
    import fnmatch

    named = {name for pattern in _ENVIRON for name in fnmatch.filter(os.environ, pattern)}
    return [f"{name}={os.environ[name]}" for name in sorted(named) if os.environ[name]]


def _distribution() -> str:
    import re

    return re.sub("[^a-z0-9]+", "_", loader.DATA["distribution"].lower())


def _programs(here: Facts) -> List[str]:
    """Return the compilers on this machine, each identified by its path, size and time."""
    import shutil

    named = os.environ.get("CXX", "").split()  # it may begin with a launcher such as ccache
    found = [path for path in map(shutil.which, named or ("c++", "g++", "clang++")) if path]
    if not named:
        del found[1:]
    if here["backend"].startswith("CUDA "):
        homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
        found += [f"{home}/bin/nvcc" for home in homes if home]
    return [_stamp(path) for path in found]


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


def _gpus(here: Facts) -> List[str]:
    """Return the models of the GPUs, as the kernel names them; no driver is called."""
    if not here["backend"].startswith("CUDA "):
        return []
    folder = "/proc/driver/nvidia/gpus"
    models = set()
    try:
        for each in os.listdir(folder):
            with open(f"{folder}/{each}/information", encoding="utf-8", errors="replace") as stream:
                models.add(stream.readline().strip())
    except OSError:
        pass
    return sorted(models)


def _find_built(here: Facts) -> Any:
    """Return the variant that was built on this machine for this torch, or None if there is none to be trusted."""
    cache = _cache()
    if not cache or not os.path.isdir(f"{cache}/views"):
        return None
    first, second = _names(here)
    folder = f"{cache}/views/{first}-{second}"
    if not os.path.isdir(folder) and not _has_compiler():
        others = [name for name in os.listdir(f"{cache}/views") if name.startswith(f"{first}-")]
        folder = f"{cache}/views/{max(others, default='', key=lambda name: _used(f'{cache}/views/{name}'))}"
    try:
        if not all(map(_is_trusted, (cache, f"{cache}/views", folder, f"{folder}/variant.json"))):
            return None
        import json

        with open(f"{folder}/variant.json", encoding="utf-8") as stream:
            variant = json.load(stream)["variant"]
        for file in variant["files"]:
            place = f"{folder}/{file['path']}"
            if os.path.realpath(place) != place or not place.startswith(f"{folder}/"):
                return None  # it leads out of the folder
            file["path"] = place
            if not _is_trusted(place) or os.stat(place).st_size != file["size"]:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if os.access(folder, os.W_OK):
        os.utime(f"{folder}/variant.json")  # a full cache loses the builds that were unused for longest
    return variant


def _has_compiler() -> bool:
    import shutil

    return any(map(shutil.which, (os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"])))


def _used(folder: str) -> float:
    try:
        return os.stat(f"{folder}/variant.json").st_mtime
    except OSError:
        return 0.0


def _is_trusted(path: str) -> bool:
    """Return whether only this user or the administrator can have written ``path``."""
    status = os.lstat(path)
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def _with(choice: Choice, variant: Variant) -> Choice:
    """Return the choice of a variant that was built on this machine."""
    others = [each for each in choice.variants if each["label"] != variant["label"]]
    reasons = {**choice.reasons, variant["label"]: []}
    return loader.Choice(choice.here, [*others, variant], variant, reasons)


# 3. A new build -------------------------------------------------------------------------------------------------------

BUILDER = ("hatch_torch_ext", "auditwheel")  # only the extra `build` of hatch-torch-ext installs auditwheel

# The builder runs this in another process: its modules, threads and signal handlers stay out of the user's.
_BUILD = """
import json, os, sys
for stream in sys.stdin, sys.stdout:
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever PYTHONIOENCODING says
request = json.loads(sys.stdin.readline())
sys.path[:] = request["path"]
os.umask(0o077)  # what others can write is not loaded
from hatch_torch_ext.user import first_use
try:
    fault = first_use.build(request, say=lambda line: print(line, flush=True))
    print("\\0" + json.dumps(fault), flush=True)
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(1)  # the process that waited has ended: no traceback
"""


def _build(choice: Choice) -> Variant:
    """Build a variant for the installed torch, once for all processes that ask. Raises ImportError if that fails."""
    head = f"{loader.PACKAGE}: no compiled variant fits, and none can be built for torch {choice.here['torch']}:"
    if not _starts_python():
        raise loader.LoadError("\n".join([head, *_by_hand()]))
    if not _has_builder():
        raise loader.LoadError(f"{head} hatch-torch-ext[build] is not installed here. Type:\n{_install_builder()}")
    cache = _cache()
    if not cache:
        raise loader.LoadError(
            f"{head} there is no home folder for a cache (HOME is not set, or is not an absolute path). {_ELSEWHERE}"
        )
    fault = _run_builder(choice.here, cache)
    if fault:
        raise loader.LoadError(f"{head}\n{fault}\n(TORCH_EXT_BUILD=0 builds nothing.)")
    variant = _find_built(choice.here)
    if variant is None:
        raise loader.LoadError(
            f"{head} what was built in {cache} cannot be read, or others than you can write that folder. {_ELSEWHERE}"
        )
    built: Variant = variant
    return built


def _has_builder() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in BUILDER)


def _starts_python() -> bool:
    """Return whether ``sys.executable`` is a Python: a frozen program, or one that embeds it, would start itself."""
    named = sys.executable or ""
    names = [os.path.basename(each) for each in (named, os.path.realpath(named)) if named]
    return not loader._frozen() and any(name.startswith("python") for name in names)


def _by_hand() -> List[str]:
    """Return what builds where no Python can be started."""
    if not loader._frozen():
        line = "This program, which embeds Python, cannot build it. Build it by the Python of its environment:"
        return [line, f"  python -m {loader.PACKAGE}._variants --build"]
    name = loader.DATA["distribution"]
    line = "This program cannot build it. Install a variant for this torch where it is made, and make it again:"
    return [line, f"  pip install --force-reinstall --no-deps --no-cache-dir --no-binary {name} {name}"]


def _builders_path() -> List[str]:
    """Return sys.path for the builder: its own packages first, and not the folder of the script that is running.

    A module of the user's there, ``packaging.py`` or ``json.py``, must not take the place of what the builder imports.
    """
    from importlib.util import find_spec

    origins = [spec.origin for spec in map(find_spec, BUILDER) if spec is not None and spec.origin]
    first = [os.path.dirname(os.path.dirname(os.path.abspath(origin))) for origin in origins]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    of_the_user = {os.path.dirname(os.path.realpath(script))} if script else set()
    standard = [each for each in sys.path if os.path.isfile(f"{each}/os.py") or each.endswith(("lib-dynload", ".zip"))]
    others = [each for each in sys.path if each and os.path.realpath(each) not in of_the_user]
    return list(dict.fromkeys([*standard, *first, *others]))


def _run_builder(here: Facts, cache: str) -> str:
    """Run the builder, write its messages to stderr, and return why it failed, or ""."""
    import subprocess

    request = _request(here, cache)
    loader._helped("tell", None, f"no compiled variant fits torch {here['torch']}: one is built, once")
    own = tuple(f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix))
    added = [path for path in request["path"] if not path.startswith(own)]
    try:
        builder = subprocess.Popen(
            [sys.executable, "-c", _BUILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_folder_to_work_in(),
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(added), PYTHONSAFEPATH="1"),
        )
    except OSError as error:
        return f"the builder cannot be started: {error}. Limits are set by `ulimit -u` and, in a container, pids.max"
    with builder:
        try:
            fault = _answer(builder, request)
        except BaseException:  # Ctrl-C, or an exception of a signal handler: the build is to stop
            builder.terminate()
            raise
    return fault or (f"the builder ended with status {builder.returncode}" if builder.returncode else "")


def _request(here: Facts, cache: str) -> Dict[str, Any]:
    """Return what the builder is to build, and where."""
    import torch

    first, second = _names(here)
    return {
        "package": loader.DATA["package"],
        "distribution": loader.DATA["distribution"],
        "root": loader.ROOT,
        "cache": cache,
        "view": f"{first}-{second}",
        "torch": os.path.dirname(os.path.abspath(str(torch.__file__))),
        "nvidia": [path for path in (f"{each}/nvidia" for each in sys.path if each) if os.path.isdir(path)],
        "path": _builders_path(),
    }


def _answer(builder: Any, request: Dict[str, Any]) -> str:
    """Send the request, write the builder's messages to stderr, and return the fault that it names, or ""."""
    import json

    fault = ""
    try:
        builder.stdin.write(json.dumps(request).encode() + b"\n")
        builder.stdin.close()
    except BrokenPipeError:
        pass  # the builder could not start: it wrote why to stderr
    for raw in builder.stdout:
        line = raw.decode("utf-8", "replace").rstrip("\n")
        if line.startswith("\0"):
            fault = str(json.loads(line[1:]))
        else:
            loader._helped("tell", None, line)
    return fault


def _folder_to_work_in() -> Optional[str]:
    """Return None for the current folder, or a folder that exists if that was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return os.sep
    return None


def _install_builder() -> str:
    return f'  pip install "{loader.DATA["distribution"]}[build]"'


def offer() -> Iterator[str]:
    """Yield lines on how to build the package for the installed torch."""
    if permission() is False:
        variable, _ = loader._setting("BUILD")
        yield f"(A build for this torch is forbidden by {variable}={loader._plain(os.environ[variable], 20)}.)"
        return
    of_others = _of_others()
    if of_others:
        yield of_others
    cache = _cache()
    if os.path.isdir(cache) and os.stat(cache).st_uid == os.geteuid() and not _is_trusted(cache):
        import shlex

        yield "What was built is not loaded, since other users can write its folder. Keep it for yourself:"
        yield f"  chmod go-w {shlex.quote(cache)}"
    if not _starts_python():
        yield from _by_hand()
        return
    yield "Build it for this torch, once (TORCH_EXT_BUILD=1 does so at import); that takes a C++ compiler:"
    if not _has_builder():
        yield _install_builder()
    yield f"  python -m {loader.PACKAGE}._variants --build"


# 4. Commands ----------------------------------------------------------------------------------------------------------


def build_now() -> str:
    """Build for the installed torch, even if no variable allows it, unless one forbids it."""
    choice = loader.choose(must=False)
    if choice.variant:
        return f"{choice.label} {'was built here' if choice.variant.get('built') else 'fits'}: nothing is to be built"
    if choice.idle:
        raise loader.LoadError(f"{loader.PACKAGE}: nothing is built, as {choice.idle}")
    if not choice.here["torch"] or permission() is False:
        raise loader._no_variant(choice)
    return f"{_build(choice)['label']} is built, and loaded from now on"


def _kept() -> List[str]:
    """Return the folders in the cache with builds of this package, for every torch."""
    of_others = _of_others()
    if of_others:
        raise loader.LoadError(f"{loader.PACKAGE}: {of_others}")
    found = []
    for folder in ("views", "built", "failed"):
        try:
            names = os.listdir(f"{_cache()}/{folder}")
        except OSError:
            continue
        found += [f"{_cache()}/{folder}/{name}" for name in sorted(names) if name.startswith(f"{_distribution()}-")]
    return found


def show_cache() -> str:
    """Return the cache folder and this package's builds in it, each with its torch."""
    import json

    lines = [_cache() or "no folder: neither HOME nor TORCH_EXT_BUILD_CACHE names one"]
    for folder in _kept():
        try:
            with open(f"{folder}/variant.json", encoding="utf-8") as stream:
                built = json.load(stream)
            line = f"  {built['variant']['label']}, for {built['torch']}"
        except (OSError, ValueError, KeyError, TypeError):  # a folder without one, or a damaged one: it is not loaded
            continue
        lines.append(line)
    return "\n".join(lines)


def clear_cache() -> str:
    """Remove the builds of this package on this machine."""
    import shutil

    kept = _kept()
    for folder in kept:
        for parent, _, _ in os.walk(folder):
            if os.stat(parent).st_uid == os.geteuid():
                os.chmod(parent, 0o700)
        if os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)
        elif os.access(os.path.dirname(folder), os.W_OK):
            os.unlink(folder)
    left = [folder for folder in kept if os.path.exists(folder)]
    if left:
        raise loader.LoadError(f"{loader.PACKAGE}: {left[0]} cannot be removed")
    return f"removed {len(kept)} from {_cache()}"
