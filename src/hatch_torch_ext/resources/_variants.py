"""Loads the one compiled variant of this package that fits the torch installed here.

Written by hatch-torch-ext. The code is the same in every package; ``DATA``, at the end of the file, is this one's.
The package's ``__init__`` calls ``load()``; ``python -m <package>._variants`` explains the choice and loads nothing.

The parts of this file, in the order of the work:

1. Facts: read the installed torch, Python, the machine, the C library.
2. Selection: check every variant by every rule. Pure: no file is opened.
3. A build at first use, if none fits: an earlier build of this machine is found, or one is made if that is allowed.
4. Messages: the reasons, and the command to type.
5. Loading: check and open the files of the variant chosen, once in a process.
6. The command line.
7. The data.

Imports at the top, and in functions that every user runs, are few, since they cost time; torch is imported only in
functions.
The syntax is that of Python 3.8.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all the rest, and only type checkers ask for it
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

    Facts = Dict[str, Any]  # see facts()
    Variant = Dict[str, Any]  # an item of DATA["variants"]: the fields are explained there
    File = Dict[str, Any]  # an item of a variant's "files"
    Reason = Tuple[str, str, str]  # the rule, what the variant was built for, the fact here
    Numbers = Tuple[int, ...]  # of a version: (12, 8)


class TorchExtWarning(RuntimeWarning):
    """What was loaded works, but perhaps not as the user expects."""


# 1. Facts ------------------------------------------------------------------------------------------------------------


def facts() -> Facts:
    """Return the facts on which the choice depends. Imports torch if it is installed, and touches no device.

    ``torch`` is the version, "" without torch. ``backend`` is ``CPU``, ``CUDA 12.8``, ``ROCm`` or ``XPU``. ``mocked``
    says that ``torch`` is a mock, which tools for documentation put in its place.
    """
    here = _facts_without_torch()
    torch = _import_torch()
    if torch is None:
        return here
    if _is_mock(torch):
        here["mocked"] = True
        return here
    here["torch"] = _plain(str(torch.__version__), 60)
    here["backend"] = _plain(_backend(torch), 60)
    here["cxx11_abi"] = bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
    return here


def _facts_without_torch() -> Facts:
    libc, libc_version = _libc()
    return {
        "system": sys.platform,
        "machine": os.uname().machine if os.name == "posix" else "unknown",
        "libc": libc,
        "libc_version": libc_version,
        "python": _python_tag(),
        "torch": "",
        "mocked": False,
        "backend": "CPU",
        "cxx11_abi": True,
    }


def _libc() -> Tuple[str, str]:
    """Return the C library and its version, "" if unknown."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        # musl does not know the question; it does not tell its version at all.
        return ("musl" if sys.platform == "linux" else ""), ""
    return name, version


def _python_tag() -> str:
    """Return the interpreter's tag as wheels have it: ``cp311``, ``cp313t`` (free-threaded), ``pypy310``."""
    name = sys.implementation.name.replace("cpython", "cp")
    threading = "t" if "t" in getattr(sys, "abiflags", "") else ""
    return f"{name}{sys.version_info[0]}{sys.version_info[1]}{threading}"


def _import_torch() -> Any:
    """Return torch, or None if it is not installed. A broken torch raises its own error."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    if not (hasattr(torch, "version") and hasattr(torch, "_C")):
        folders = list(getattr(torch, "__path__", []))
        place = getattr(torch, "__file__", None) or (folders[0] if folders else "something without a file")
        raise ImportError(
            f"{PACKAGE}: `import torch` finds {_plain(str(place), 400)}, which is not PyTorch and hides it. "
            "Rename it, or take its folder off sys.path"
        )
    return torch


def _is_mock(torch: Any) -> bool:
    """Return whether ``torch`` has every attribute, as unittest's MagicMock and Sphinx's autodoc_mock_imports have."""
    return hasattr(torch, "a_name_that_torch_does_not_have")


def _backend(torch: Any) -> str:
    """Return what torch was built for."""
    if getattr(torch.version, "hip", None):
        return "ROCm"
    if getattr(torch.version, "xpu", None):
        return "XPU"
    if getattr(torch.version, "cuda", None):
        return f"CUDA {torch.version.cuda}"
    return "CPU"


# 2. Selection --------------------------------------------------------------------------------------------------------

_known_numbers: Dict[str, Numbers] = {}


def _numbers(version: str) -> Numbers:
    """Return the numbers in ``version``: ``12.8`` is (12, 8), ``cp311`` is (311,). Never raises."""
    if version not in _known_numbers:
        import re

        found = re.findall("[0-9]+", version)
        _known_numbers[version] = tuple(int(digits) if _is_number(digits) else 0 for digits in found)
    return _known_numbers[version]


class _Release:
    """The parts of a torch version: ``2.8.0a0+git1f2e3d4`` is of (2, 8), no final release, not torch's own build."""

    def __init__(self, version: str) -> None:
        public, _, local = version.partition("+")
        parts = public.replace(".post", ".").split(".")
        self.minor = (*_numbers(public), 0, 0)[:2]
        self.final = all(_is_number(part) for part in parts)
        # torch's own builds are called +cpu, +cu128, +rocm6.3, +xpu, +cpu.cxx11.abi.
        builder = local.partition(".")[0].rstrip("0123456789")
        self.of_torch = local == "" or builder in ("cpu", "cu", "rocm", "xpu")


def _is_number(text: str) -> bool:
    """Return whether ``text`` is a number in a version: ASCII digits, and not more than versions have."""
    return text.isascii() and text.isdigit() and len(text) < 10


def _machine_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require the operating system and the processor."""
    if here["system"] == "linux" and here["machine"] == variant["machine"]:
        return None
    return "machine", f"linux {variant['machine']}", f"{here['system']} {here['machine']}"


def _libc_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require the same kind of C library, not older than the variant's symbols need."""
    if not here["libc"]:
        return None
    same_kind = here["libc"] == variant["libc"]
    known = here["libc_version"] != ""
    if same_kind and not (known and _numbers(here["libc_version"]) < _numbers(variant["libc_floor"])):
        return None
    wanted = f"{variant['libc']} {variant['libc_floor']} or newer"
    return "libc", wanted, f"{here['libc']} {here['libc_version']}".strip()


def _python_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require the Python that the modules are for or, on the limited API, that one or a newer one."""
    wanted, mine = variant["python"], here["python"]
    if wanted is None or wanted == mine:
        return None
    # A free-threaded Python (cp313t) has no limited API, and other interpreters have none either.
    has_abi3 = mine.startswith("cp3") and _is_number(mine[3:])
    if wanted.startswith("abi3-cp3") and has_abi3 and int(mine[3:]) >= int(wanted[len("abi3-cp3") :]):
        return None
    return "python", wanted, mine


def _torch_rule(variant: Variant, here: Facts, installed: _Release, *, prerelease: bool) -> Optional[Reason]:
    """Require the same major.minor; for a stable-ABI variant, its minimum or anything newer.

    A pre-release counts as its release only if the user says so, but the stable ABI also holds for every pre-release
    after its minimum. A final release with a local version (``2.8.0+computecanada``) is that release.
    """
    built, stable = _numbers(variant["torch"]), variant["stable_abi"]
    name = f"torch {variant['torch']}" + (" or newer" if stable else "")
    fits = installed.minor >= built if stable else installed.minor == built
    if not here["torch"] or not fits:
        return "torch", name, here["torch"] or "no torch"
    if variant.get("snapshot") == here["torch"]:
        return None
    after_the_minimum = stable and installed.minor > built
    if installed.final or after_the_minimum or prerelease:
        return None
    return "snapshot", f"releases of {name}", f"the snapshot {here['torch']}"


_ABI_NAMES = {True: "the C++11 ABI", False: "the C++ ABI from before C++11"}


def _abi_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require torch's C++ ABI; a variant that uses no C++ of torch has None."""
    if not here["torch"] or variant["cxx11_abi"] in (None, here["cxx11_abi"]):
        return None
    return "abi", _ABI_NAMES[variant["cxx11_abi"]], _ABI_NAMES[here["cxx11_abi"]]


def _backend_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """For a CUDA variant, require a torch of the same CUDA major, no lower minor; a CPU variant runs anywhere."""
    if not here["torch"] or not variant["cuda"]:
        return None
    built = _numbers(variant["cuda"])
    is_cuda = here["backend"].startswith("CUDA ")
    installed = _numbers(here["backend"]) if is_cuda else ()
    if installed[:1] == built[:1] and installed >= built:
        return None
    return "backend", f"CUDA {variant['cuda']} or a newer {built[0]}.x", f"a torch for {here['backend']}"


def _objections(variant: Variant, here: Facts, installed: _Release, *, prerelease: bool) -> List[Reason]:
    """Return the reasons against ``variant``, first those that no other installation can remove."""
    answers = [
        _machine_rule(variant, here),
        _libc_rule(variant, here),
        _python_rule(variant, here),
        _torch_rule(variant, here, installed, prerelease=prerelease),
        _abi_rule(variant, here),
        _backend_rule(variant, here),
    ]
    return [answer for answer in answers if answer is not None]


def _rank(variant: Variant) -> Tuple[Any, ...]:
    """Return a sort key; the better variant sorts last."""
    python = variant["python"] or ""
    return (
        variant["cuda"] is not None,  # CUDA before CPU
        not variant["stable_abi"],  # exact before stable
        _numbers(variant["cuda"] or ""),  # the newer CUDA
        _numbers(variant["torch"]),  # the newer minimum
        python != "",  # for a Python before for any
        not python.startswith("abi3"),  # for this very Python before from one on
        _numbers(python),
        variant["label"],  # the same choice everywhere
    )


class Choice:
    """The outcome of ``select``.

    ``variant`` is the chosen one, or None. ``reasons`` has for every label the reasons against it. ``idle`` says why
    nothing is to be loaded at all, else it is "".
    """

    def __init__(
        self,
        here: Facts,
        variants: Sequence[Variant],
        variant: Any,
        reasons: Dict[str, List[Reason]],
        idle: str = "",
    ) -> None:
        self.here = here
        self.variants = variants
        self.variant = variant
        self.reasons = reasons
        self.idle = idle

    @property
    def label(self) -> str:
        """The label of the chosen variant, or ""."""
        return str(self.variant["label"]) if self.variant else ""

    @property
    def files(self) -> List[str]:
        """The absolute paths of the chosen variant's files that register operators."""
        if not self.variant:
            return []
        return [_path(file) for file in self.variant["files"] if file["registers"]]

    def __str__(self) -> str:
        """Return the facts on one line."""
        here = self.here
        torch = "" if self.idle else "no torch"
        if here["torch"]:
            torch = f"torch {here['torch']} ({here['backend']}, {_ABI_NAMES[here['cxx11_abi']]})"
        libc = f"{here['libc']} {here['libc_version']}".strip()
        machine = f"{here['system']} {here['machine']}"
        return f"Here: {', '.join(part for part in (torch, here['python'], machine, libc) if part)}"

    def against(self, label: str) -> str:
        """Return why the variant ``label`` does not fit, or ""."""
        return "; ".join(f"built for {wanted}, here is {have}" for _, wanted, have in self.reasons[label])

    def verdicts(self) -> Dict[str, str]:
        """Return for every label why it was chosen or rejected."""
        return {label: self._verdict(label) for label in self.reasons}

    def _verdict(self, label: str) -> str:
        if self.idle:
            return f"not loaded: {self.idle}"
        if label == self.label:
            chosen = "chosen, built here" if self.variant.get("built") else "chosen"
            return f"forced, though {self.against(label)}" if self.reasons[label] else chosen
        if self.reasons[label]:
            return f"rejected: {self.against(label)}"
        return f"fits, but {self.label} is better"


def select(here: Facts, variants: Sequence[Variant], *, prerelease: bool = False, forced: str = "") -> Choice:
    """Choose among ``variants`` for the facts ``here``. ``forced`` is a label that the user insists on."""
    installed = _Release(here["torch"])
    reasons = {each["label"]: _objections(each, here, installed, prerelease=prerelease) for each in variants}
    if forced:
        candidates = [each for each in variants if each["label"] == forced]
    else:
        candidates = [each for each in variants if not reasons[each["label"]]]
    return Choice(here, variants, max(candidates, key=_rank, default=None), reasons)


NOTHING = "none"
"""The value of ``TORCH_EXT_VARIANT`` that loads no variant: for the Python side of the package alone."""


def choose(*, must: bool = True) -> Choice:
    """Choose for this process and its environment variables; with ``must``, raise ImportError if nothing fits."""
    variants = DATA["variants"]
    labels = [each["label"] for each in variants]
    variable, forced = _setting("VARIANT")
    if forced == NOTHING:
        return _idle(_facts_without_torch(), f"{variable}={NOTHING}")
    if forced and forced not in labels:
        raise ImportError(f"{PACKAGE} has no variant {_plain(forced, 60)!r} ({variable}), only {', '.join(labels)}")
    here = facts()
    if here.get("mocked"):
        return _idle(here, "torch is a mock")
    _, prerelease = _setting("PRERELEASE")
    choice = select(here, variants, prerelease=prerelease != "", forced=forced)
    return _nothing_fits(choice, must=must) if choice.variant is None else choice


def _idle(here: Facts, why: str) -> Choice:
    return Choice(here, DATA["variants"], None, {each["label"]: [] for each in DATA["variants"]}, why)


def _nothing_fits(choice: Choice, *, must: bool) -> Choice:
    """Handle the case that no variant fits: use one that was built here, or build one if that is allowed.

    Otherwise, raise ImportError if ``must`` is true, else return the choice unchanged.
    """
    if "fallback" in DATA and choice.here["torch"] and _allowed() is not False:
        variant = _find_built(choice.here)
        if variant is None and must and _allowed():
            variant = _build(choice)
        if variant is not None:
            return _with(choice, variant)
    if must:
        raise ImportError(_refusal_of_all(choice))
    return choice


_NO = ("0", "false", "no", "off")


def _setting(name: str) -> Tuple[str, str]:
    """Return the environment variable for ``name`` and its value; "" for a value that means no.

    MY_PKG_TORCH_EXT_<name>, for this package alone, overrides TORCH_EXT_<name>, for all packages with such a loader.
    """
    variable = f"TORCH_EXT_{name}"
    own = f"{DATA['package'].replace('.', '_').upper()}_{variable}"
    if own in os.environ:
        variable = own
    value = os.environ.get(variable, "")
    return variable, ("" if value.lower() in _NO else value)


# 3. A build at first use ---------------------------------------------------------------------------------------------

BUILDER = ("hatch_torch_ext", "auditwheel")  # only the extra `build` of hatch-torch-ext installs auditwheel
_ENVIRON = (  # variables that affect what is compiled
    *("CC", "CFLAGS", "CPPFLAGS", "CUDAARCHS", "CUDAFLAGS", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "CXX", "CXXFLAGS"),
    *("LDFLAGS", "TORCH_CUDA_ARCH_LIST"),
)


def _allowed() -> Optional[bool]:
    """Return whether the user, else the author, allows a build; None if only an earlier build may be used."""
    variable, value = _setting("BUILD")
    if os.environ.get(variable, "").lower() in _NO:
        return False
    return True if value or DATA["fallback"]["default"] else None


def _cache() -> str:
    """Return the folder for builds on this machine, "" if none can be named."""
    named = os.environ.get("TORCH_EXT_BUILD_CACHE", "")
    if named:
        return os.path.abspath(os.path.expanduser(named))  # a Dockerfile's ENV leaves "~" as it is
    folder = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    return os.path.join(folder, "hatch-torch-ext", "first-use") if os.path.isabs(folder) else ""


def _of_others() -> str:
    """Return what to do about a cache that this user cannot read, such as one of an administrator; else ""."""
    folder = _cache()
    if not os.path.isdir(folder) or os.access(folder, os.R_OK | os.X_OK):
        return ""
    import shlex

    command = f"chmod -R a+rX {shlex.quote(folder)}"
    return f"What was built in {_plain(folder, 400)} cannot be read by this user; its owner allows it: {command}"


def _names(here: Facts) -> Tuple[str, str]:
    """Return the two parts of the view's name: a hash of what must agree, and one of the compilers and GPUs.

    Without a compiler on this machine, a view whose second part differs is used too.
    """
    import hashlib

    import torch

    folder = os.path.dirname(os.path.abspath(str(torch.__file__)))
    must = [DATA["distribution"], DATA["package"], DATA["fallback"]["digest"], folder]
    must += [str(here[name]) for name in ("torch", "backend", "cxx11_abi", "python", "machine", "libc")]
    must += [str(getattr(torch.version, "git_version", "")), str(getattr(torch.version, "hip", ""))]
    tools = [*_programs(here), *_gpus(here), *(os.environ.get(name, "") for name in _ENVIRON)]
    first, second = (hashlib.sha256("\0".join(each).encode("utf-8", "replace")).hexdigest() for each in (must, tools))
    return f"{_distribution()}-{first[:24]}", second[:16]


def _distribution() -> str:
    import re

    return re.sub("[^a-z0-9]+", "_", DATA["distribution"].lower())


def _programs(here: Facts) -> List[str]:
    """Return the compilers on this machine, each identified by its path, size and time."""
    import shutil

    asked = os.environ.get("CXX", "").split()  # it may begin with a launcher such as ccache
    found = [path for path in map(shutil.which, asked or ("c++", "g++", "clang++")) if path]
    if not asked:
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
            file["path"] = f"{folder}/{file['path']}"
            if not _is_trusted(file["path"]) or os.stat(file["path"]).st_size != file["size"]:
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
    return Choice(choice.here, [*others, variant], variant, reasons)


# The builder runs this in another process: its modules, threads and signal handlers stay out of the user's.
_BUILD = """
import json, os, sys
for stream in sys.stdin, sys.stdout:
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever PYTHONIOENCODING says
request = json.loads(sys.stdin.readline())
sys.path[:] = request["path"]
from hatch_torch_ext.user import first_use
try:
    fault = first_use.build(request, say=lambda line: print(line, flush=True))
    print("\\0" + json.dumps(fault), flush=True)
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(1)  # the process that asked has ended: no traceback
"""


def _build(choice: Choice) -> Variant:
    """Build a variant for the installed torch, once for all processes that ask. Raises ImportError if that fails."""
    head = f"{PACKAGE}: no compiled variant fits, and none can be built for torch {choice.here['torch']}:"
    if not _has_builder():
        raise ImportError(f"{head} hatch-torch-ext is not installed here. Type:\n{_install_builder()}")
    cache = _cache()
    if not cache:
        raise ImportError(
            f"{head} there is no home folder for a cache (HOME is not set, or is no absolute path). "
            "Name a folder of your own: TORCH_EXT_BUILD_CACHE=/path/to/folder"
        )
    fault = _run_builder(choice.here, cache)
    if fault:
        raise ImportError(f"{head}\n{fault}\n(TORCH_EXT_BUILD=0 builds nothing.)")
    variant = _find_built(choice.here)
    if variant is None:
        raise ImportError(
            f"{head} what was built in {cache} cannot be read, or others than you can write that folder. "
            "Name a folder of your own: TORCH_EXT_BUILD_CACHE=/path/to/folder"
        )
    built: Variant = variant
    return built


def _has_builder() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in BUILDER)


def _run_builder(here: Facts, cache: str) -> str:
    """Run the builder, write its messages to stderr, and return why it failed, or ""."""
    import json
    import subprocess

    import torch

    first, second = _names(here)
    request = {
        "package": DATA["package"],
        "distribution": DATA["distribution"],
        "root": ROOT,
        "cache": cache,
        "view": f"{first}-{second}",
        "torch": os.path.dirname(os.path.abspath(str(torch.__file__))),
        "nvidia": [path for path in (f"{each}/nvidia" for each in sys.path if each) if os.path.isdir(path)],
        "path": [path for path in sys.path if path],
    }
    _tell(f"no compiled variant fits torch {here['torch']}: one is built, once")
    own = tuple(f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix))
    added = [path for path in request["path"] if not path.startswith(own)]
    fault = ""
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
    with builder as running:
        if running.stdin is None or running.stdout is None:
            return "its streams are not there"
        try:
            running.stdin.write(json.dumps(request).encode() + b"\n")
            running.stdin.close()
        except BrokenPipeError:
            pass  # the builder could not start: it wrote why to stderr
        try:
            for raw in running.stdout:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                if line.startswith("\0"):
                    fault = str(json.loads(line[1:]))
                else:
                    _tell(line)
        except BaseException:  # Ctrl-C, or an exception of a signal handler: the build is to stop
            running.terminate()
            raise
    return fault or (f"the builder ended with status {running.returncode}" if running.returncode else "")


def _folder_to_work_in() -> Optional[str]:
    """Return None for the current folder, or a folder that exists if that was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return os.sep
    return None


def _tell(line: str) -> None:
    """Write a line to stderr, if it is open."""
    try:
        print(f"{PACKAGE}: {line}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


def _install_builder() -> str:
    return f'  pip install "{DATA["distribution"]}[build]"'


# 4. Messages ---------------------------------------------------------------------------------------------------------

_FEW = 6  # up to this many variants are listed one by one
_WIDTH = 120  # characters of a line


def _plain(text: str, limit: int) -> str:
    """Return foreign text in printable form: on one line, without control characters, shortened if it is long."""
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:limit]
    )
    return shown if len(text) <= limit else f"{shown}..."


def _warn(text: str) -> None:
    """Warn the caller of the function that calls this one."""
    import warnings

    warnings.warn(text, TorchExtWarning, stacklevel=3)


def _refusal_of_all(choice: Choice) -> str:
    """Return why nothing fits and, if the wheel holds its sources, how to build it here."""
    count = len(choice.variants)
    if count:
        text = refusal(choice, choice.variants, f"none of its compiled variants ({count}) fits here.")
    else:
        text = f"{PACKAGE}: it holds no compiled variant, only the sources of one.\n{choice}"
        if not choice.here["torch"]:
            text += "\nInstall torch:\n  pip install torch"
    if "fallback" not in DATA or not choice.here["torch"]:
        return text
    return "\n".join([text, *_offer()])


def _offer() -> Iterator[str]:
    """Yield lines on how to build the package for the installed torch."""
    if _allowed() is False:
        variable, _ = _setting("BUILD")
        yield f"(A build for this torch is forbidden by {variable}={_plain(os.environ[variable], 20)}.)"
        return
    of_others = _of_others()
    if of_others:
        yield of_others
    yield "Or build it for this torch, once (TORCH_EXT_BUILD=1 does so at import); that takes a C++ compiler:"
    if not _has_builder():
        yield _install_builder()
    yield f"  python -m {PACKAGE}._variants --build"


def refusal(choice: Choice, variants: Sequence[Variant], head: str) -> str:
    """Return why ``variants`` do not fit, one by one if they are few, else by rule; then the remedy."""
    told = _one_by_one if len(variants) <= _FEW else _by_rule
    lines = [
        f"{PACKAGE}: {head}",
        str(choice),
        *told(choice, variants),
        *remedy(choice, variants),
        *_partial(),
        *_cut(),
        "or build it for this one, if its matrix has it:"
        if "editable" in DATA or "here" in DATA
        else "or a newer release, if there is one:",
        f"  {_update()}",
        f"More: python -m {PACKAGE}._variants",
    ]
    return "\n".join(lines)


def _partial() -> List[str]:
    """Return a note if the wheel is a partial one: another part may have a variant that fits."""
    lacking = DATA.get("partial")
    if not lacking:
        return []
    names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    return [f"or the whole wheel, as this is a part of it without {names}:", "  hatch-torch-ext merge PART... -o DIR"]


def _cut() -> List[str]:
    """Return a note on where the other variants are, if the wheel was split from one that held them all."""
    others = DATA.get("cut")
    if not others:
        return []
    shown = [others[0], f"and {len(others) - 1} more"] if len(others) > 2 else others
    return [
        "or take another wheel of this release, as this one was cut: the other variants are in",
        f"  {' '.join(shown)}",
    ]


def _one_by_one(choice: Choice, variants: Sequence[Variant]) -> Iterator[str]:
    for label in (variant["label"] for variant in variants):
        line = f"  {label}: {choice.against(label)}"
        if len(line) > _WIDTH:  # the facts are in a line above
            line = f"  {label}: built for {', '.join(wanted for _, wanted, _ in choice.reasons[label])}"
        yield line


def _by_rule(choice: Choice, variants: Sequence[Variant]) -> Iterator[str]:
    """Group the variants by the first rule that rejects them and by the fact; yield a line for each group."""
    groups: Dict[Tuple[str, str], List[str]] = {}
    for variant in variants:
        rule, wanted, have = choice.reasons[variant["label"]][0]
        groups.setdefault((rule, have), []).append(wanted)
    for (_, have), wanted_by in groups.items():
        kinds = list(dict.fromkeys(wanted_by))
        if len(kinds) > 3:
            kinds = [kinds[0], "...", kinds[-1]]
        yield f"  {len(wanted_by)} built for {', '.join(kinds)}; here is {have}"


def remedy(choice: Choice, variants: Sequence[Variant]) -> List[str]:
    """Return the command that installs the nearest torch for this Python and machine; else what has to change."""
    here = choice.here
    rules = {label: {rule for rule, _, _ in reasons} for label, reasons in choice.reasons.items()}
    possible = [each for each in variants if not rules[each["label"]] & {"machine", "libc"}]
    if not possible:
        return ["Use another system,"]
    reachable = [each for each in possible if "python" not in rules[each["label"]] and _has_wheels(each, here)]
    if not reachable:
        pythons = {each["python"] or "cp{} to cp{}".format(*each["cp"]) for each in possible}
        return [f"Use a Python that it was built for: {', '.join(sorted(pythons))}"]

    best = max(reachable, key=lambda each: _nearness(each, here, rules[each["label"]]))
    wanted = f"torch>={best['torch']}" if best["stable_abi"] else f"torch=={best['torch']}.*"
    if not best["on_default_index"]:
        return [f"Use a build of {wanted} with {_ABI_NAMES[best['cxx11_abi']]}, which torch's default index lacks,"]

    against = rules[best["label"]]
    same_release = _numbers(best["torch"]) == _Release(here["torch"]).minor
    again = " --force-reinstall" if same_release else ""  # pip would keep the installed build
    lines = ["Install a torch that it was built for:", f'  pip install{again} "{wanted}"{_index(best, here, against)}']
    if against == {"snapshot"}:
        lines.append("(or this snapshot, at your own risk: TORCH_EXT_PRERELEASE=1)")
    return lines


def _has_wheels(variant: Variant, here: Facts) -> bool:
    """Return whether the torch of ``variant`` has wheels for this Python."""
    first, last = variant["cp"]
    return bool(first <= _numbers(here["python"])[0] <= last)


def _nearness(variant: Variant, here: Facts, against: Set[str]) -> Tuple[Any, ...]:
    """Return a sort key; last is the variant whose torch is the smallest change, without a torch the newest."""
    mine = _Release(here["torch"] or "99.99").minor
    built = _numbers(variant["torch"])
    distance = [-abs(one - other) for one, other in zip(mine, built)]
    return variant["on_default_index"], "backend" not in against, distance, built, _rank(variant)


def _index(variant: Variant, here: Facts, against: Set[str]) -> str:
    """Return pip's option for torch's own index, if the default index has another build than the one needed."""
    build = f"cu{variant['cuda'].replace('.', '')}" if variant["cuda"] else "cpu"
    of_such_an_index = f"+{build[:2]}" in here["torch"]
    if "backend" in against or of_such_an_index:
        return f" --index-url https://download.pytorch.org/whl/{build}"
    return ""


def cautions(choice: Choice) -> Iterator[str]:
    """Yield what works with the chosen variant, but perhaps not as the user expects."""
    here, variant = choice.here, choice.variant
    if variant.get("built"):
        return
    if choice.reasons[choice.label]:
        against = choice.against(choice.label)
        yield f"{PACKAGE}: {choice.label} was forced, although it was {against}: it may crash"
        return
    installed = _Release(here["torch"])
    if installed.final and not installed.of_torch and not variant["stable_abi"]:
        yield (
            f"{PACKAGE}: torch {here['torch']} is not an official build of the release {variant['torch']}; "
            f"{choice.label} was compiled for torch's and is loaded"
        )
    for_gpus = [each for each in choice.variants if each["cuda"] and choice.reasons[each["label"]]]
    if for_gpus and not variant["cuda"] and here["backend"] != "CPU":
        yield refusal(choice, for_gpus, f"operators for the CPU only are loaded ({choice.label}).")


def _update() -> str:
    return _again() if "editable" in DATA or "here" in DATA else f"pip install -U {DATA['distribution']}"


def _again() -> str:
    """Return the command that reinstalls from the same source, quoted for a shell."""
    if getattr(sys, "frozen", False):  # a program made by PyInstaller or the like, which includes Python files only
        return (
            f"make the program again with all files as they are: pyinstaller --collect-all {PACKAGE}, without --strip"
        )
    if "editable" in DATA:
        import shlex
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            by = distribution(DATA["distribution"]).read_text("INSTALLER") or ""
        except PackageNotFoundError:
            by = ""
        # uv considers a project unchanged while its pyproject.toml is unchanged.
        command = "uv pip install --reinstall --no-deps" if by.strip() == "uv" else "pip install"
        return f"{command} -e {shlex.quote(DATA['editable'])}"
    if "here" in DATA:  # pip and uv keep the wheel that they built for another torch
        name = DATA["distribution"]
        return f"pip install --force-reinstall --no-deps --no-cache-dir --no-binary {name} {name}"
    return f"pip install --force-reinstall --no-deps {DATA['distribution']}"


# 5. Loading ----------------------------------------------------------------------------------------------------------


def load() -> Choice:
    """Load the variant that fits, once in a process, and return it; ImportError if none does.

    With ``TORCH_EXT_VARIANT=none``, or if torch is a mock, nothing is loaded, and the choice has no ``variant``.
    """
    if _explaining():
        raise SystemExit(main(sys.argv[1:]))
    if not _in_main_interpreter():
        remedy = "use the main one (threads and processes are fine; mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        raise ImportError(f"{PACKAGE}: torch does not work in a sub-interpreter: {remedy}")
    choice = choose()
    _, trace = _setting("TRACE")
    if trace:
        _trace(choice)
    if choice.idle:
        if choice.here.get("mocked"):
            _warn(f"{PACKAGE}: no compiled variant is loaded, as {choice.idle}: operators and modules are missing")
        return choice
    shared = _process()
    with shared.lock:
        first = _open(choice.variant, shared)
        _Modules(choice.variant).install()
    if first:
        for text in cautions(choice):
            _warn(text)
        _watch_devices(choice.variant)
    for file in choice.variant["files"]:  # not under our lock: imports take one too, and could deadlock
        if file["registers"] and file["module"]:
            __import__(f"{PACKAGE}.{file['module']}")
    return choice


def _explaining() -> bool:
    """Return whether ``python -m <package>._variants`` is importing the package on its way to this module."""
    if sys.argv[:1] != ["-m"]:
        return False
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_locals.get("mod_name") == f"{PACKAGE}._variants":  # a variable of the standard library's runpy
            return True
        frame = frame.f_back
    return False


def _in_main_interpreter() -> bool:
    if sys.version_info >= (3, 12):
        return bool(_thread._is_main_interpreter())
    import ctypes

    api: Any = getattr(ctypes, "pythonapi", None)  # PyPy's has none
    if not hasattr(api, "PyInterpreterState_Get"):
        return True
    return bool(api.PyInterpreterState_Get() == api.PyInterpreterState_Main())


def _trace(choice: Choice) -> None:
    """Write every verdict to stderr, if it is open."""
    lines = [f"{PACKAGE}: {label}: {verdict}\n" for label, verdict in choice.verdicts().items()]
    try:
        print("".join(lines), end="", file=sys.stderr)  # does nothing where stderr is None
    except (OSError, ValueError):  # stderr is closed
        return


def _process() -> Any:
    """Return what all packages of this process share, under any import name: a contract between releases."""
    name = "_torch_ext_loaded"
    if name not in sys.modules:
        fresh: Any = type(sys)(name, "The compiled variants that this process has loaded.")
        fresh.lock = _thread.RLock()
        fresh.packages = {}  # (distribution, package) -> what was loaded
        fresh.files = {}  # sha256 of a library -> its path
        fresh.modules = {}  # sha256 of a module -> its import name
        if sys.modules.setdefault(name, fresh) is fresh and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_renew_lock)
    return sys.modules[name]


def _renew_lock() -> None:
    """Give a forked process a new lock: the thread that held the old one may not exist in the child."""
    _process().lock = _thread.RLock()


def _open(variant: Variant, shared: Any) -> bool:
    """Open the libraries that register operators, unless this process has; return whether this was the first time."""
    key = (DATA["distribution"], DATA["package"])
    registering = [file for file in variant["files"] if file["registers"]]
    digests = sorted(file["sha256"] for file in registering)
    before = shared.packages.get(key)
    if before and before["digests"] != digests:
        raise ImportError(
            f"{PACKAGE}: {variant['label']} of {_plain(ROOT, 400)} cannot be loaded, as {before['label']} of "
            f"{_plain(before['root'], 400)} is: operators can be registered once in a process. "
            "Start a new one, and keep one of the two on its path"
        )
    for file in variant["files"]:
        if file["kind"] not in ("program", "data"):  # the package itself opens these
            _inspect(file)
    unopened = [file for file in registering if file["sha256"] not in {*shared.files, *shared.modules}]
    for file in unopened:
        _refuse_what_is_taken(file, variant, shared)
    for file in unopened:
        if not file["module"]:
            _open_library(file, variant)
            shared.files[file["sha256"]] = _path(file)
    loaded = {"label": variant["label"], "root": ROOT, "digests": digests}
    for kind in ("namespaces", "operators"):
        loaded[kind] = [name for file in registering for name in file[kind]]
    shared.packages.setdefault(key, loaded)
    return not before


def _refuse_what_is_taken(file: File, variant: Variant, shared: Any) -> None:
    """Raise ImportError if another library has opened a namespace of this one, or defined an operator of it.

    torch ends the process when TORCH_LIBRARY does that a second time.
    """
    for kind, ask in (("namespaces", _registered_at), ("operators", _defined_at)):
        for name in file[kind]:
            where = ask(name)
            if where and not _is_open(_path(file)):  # if it is open already, it does not register again
                raise ImportError(_taken(kind, name, where, variant, shared))


def _registered_at(namespace: str) -> str:
    """Return the place in the sources at which TORCH_LIBRARY opened ``namespace``, "" if it is not open.

    The namespace is opened from Python for this: torch then raises an exception, where a library would end the process.
    """
    from torch import _C

    try:
        _C._dispatch_library("DEF", namespace, "")  # the value is not kept, so that it is closed at once
    except RuntimeError as error:
        _, told, rest = str(error).partition("Previous registration of TORCH_LIBRARY was registered at ")
        return rest.partition(";")[0] if told else ""
    except (AttributeError, TypeError):  # a later torch may lack this function
        return ""
    return ""


def _defined_at(operator: str) -> str:
    """Return the place in the sources at which ``operator`` was defined, "" if it was not."""
    from torch import _C

    try:
        if not _C._dispatch_has_kernel(operator):  # this looks into a dictionary; the rest takes longer
            return ""
        name, _, overload = operator.partition(".")
        _C._dispatch_find_schema_or_throw(name, overload)
        _, _, rest = _C._dispatch_dump(operator).partition("registered at ")
    except (AttributeError, RuntimeError, TypeError):  # only kernels; or a later torch
        return ""
    return rest.partition("\n")[0] or "not known"


def _taken(kind: str, name: str, where: str, variant: Variant, shared: Any) -> str:
    """Return the message about a namespace or operator that is registered already, with a remedy."""
    owner = next((key[0] for key, each in shared.packages.items() if name in each.get(kind, ())), "")
    who = f"the distribution {owner}" if owner else f"something else (its source: {_plain(where, 200)})"
    remedy = "Use the two in separate processes"
    if owner:
        remedy += f", or keep one of them: pip uninstall {owner}"
    if kind == "namespaces":
        what = f"has registered the operators' namespace `{name}` (TORCH_LIBRARY)"
    else:
        what = f"has defined the operator `{name}`"
    return (
        f"{PACKAGE}: {variant['label']} cannot be loaded: {who} {what} "
        f"in this process, and torch ends a process that does it twice. {remedy}"
    )


def _is_open(path: str) -> bool:
    """Return whether this process has the library open."""
    import ctypes

    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _open_library(file: File, variant: Variant) -> None:
    """Open one library, which registers its operators with torch."""
    import torch

    try:
        torch.ops.load_library(_path(file))
    except OSError as error:
        _inspect(file, whole=True)
        words = _plain(str(error.__cause__ or error), 1000)  # torch wraps the dynamic linker's message
        raise ImportError(f"{PACKAGE}: {variant['label']} cannot be opened: {words}{_advice(words)}") from error


def _advice(words: str) -> str:
    """Return a remedy if the dynamic linker's message ``words`` is about the machine, not about the file; else ""."""
    if "failed to map segment" in words:
        return (
            f". Its file system may be mounted without `exec` (findmnt -T {_plain(ROOT, 400)}), or memory be limited "
            "(ulimit -v). Install into another folder: pip install --target FOLDER, and PYTHONPATH=FOLDER"
        )
    if "static TLS" in words:
        return (
            f". Libraries that were loaded before took the room for such variables. Import {PACKAGE} first, or start "
            "Python with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536"
        )
    if "GLIBCXX_" in words or "CXXABI_" in words:
        return (
            ". The C++ library here is older than the compiler that it was built with. In a conda environment: "
            "conda install -c conda-forge 'libstdcxx-ng>=14'"
        )
    return ""


def _path(file: File) -> str:
    return os.path.join(ROOT, file["path"])  # absolute for a variant that was built on this machine


def _inspect(file: File, *, whole: bool = False) -> None:
    """Raise ImportError for a file that differs from the built one: a damaged one may kill the process that opens it.

    Its size and both ends are compared: opening reads little else, and reading a large file in full takes seconds. With
    ``whole``, every byte is compared.
    """
    path = _path(file)
    repair = f"python -m {PACKAGE}._variants --clear-cache" if os.path.isabs(file["path"]) else _again()
    try:
        sound = os.stat(path).st_size == file["size"]
        if sound and file["ends"] is not None:
            sound = _ends(path, file["size"]) == file["ends"]
        if sound and whole:
            sound = _sha256(path) == file["sha256"]
        problem = "" if sound else "is damaged"
    except NotADirectoryError:
        problem = "lies inside an archive, where no library can be opened"
        repair = "install the package unpacked"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        expected = f"(sha256 {file['sha256']} is expected)"
        raise ImportError(f"{PACKAGE}: {_plain(path, 1000)} {problem} {expected}. Repair it: {repair}")


_END = 512 << 10  # bytes


def _ends(path: str, size: int) -> int:
    """Return the CRC-32 of the first and the last 512 KiB of a file of ``size`` bytes."""
    import zlib

    with open(path, "rb", buffering=0) as stream:
        checksum = zlib.crc32(stream.read(_END))
        if size > _END:
            stream.seek(max(_END, size - _END))
            checksum = zlib.crc32(stream.read(_END), checksum)
    return checksum


def _sha256(path: str) -> str:
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


class _Modules:
    """Makes the variant's modules importable as ``<package>.<module>``, a name that pickles and graphs can keep."""

    def __init__(self, variant: Variant) -> None:
        self.torch_ext_package = PACKAGE
        self.files = {f"{PACKAGE}.{file['module']}": file for file in variant["files"] if file["module"]}

    def install(self) -> None:
        """Replace an earlier finder of this package."""
        others = [finder for finder in sys.meta_path if getattr(finder, "torch_ext_package", "") != PACKAGE]
        sys.meta_path[:] = [self, *others] if self.files else others

    def find_spec(self, name: str, *_: object) -> Any:
        """Serve the modules of the variant, and no other."""
        if name not in self.files:
            return None
        from importlib import util

        file = self.files[name]
        first = _process().modules.setdefault(file["sha256"], name)
        known_by_another_name = first != name and not file["path"].endswith(".py")
        loader: Any = self if known_by_another_name else None
        return util.spec_from_file_location(name, _path(file), loader=loader)

    def create_module(self, spec: Any) -> Any:
        """Return the module if it was imported under another name: its types can be registered only once."""
        first = _process().modules[self.files[spec.name]["sha256"]]
        __import__(first)
        return sys.modules[first]

    def exec_module(self, module: Any) -> None:
        """Do nothing: the first import ran the module."""


def _watch_devices(variant: Variant) -> None:
    """Compare the GPUs with the compiled architectures once CUDA is initialised, which this does not do itself."""
    if not variant["archs"]:
        return
    from torch import cuda

    def check() -> None:
        for index in range(cuda.device_count()):
            major, minor = cuda.get_device_capability(index)
            if not any(first <= 10 * major + minor <= last for first, last in variant["archs"].values()):
                _warn(
                    f"{PACKAGE}: no code of {variant['label']} runs on cuda:{index} (capability {major}.{minor}), "
                    f"only on {', '.join(variant['archs'])}. Try: {_update()}"
                )

    if cuda.is_initialized():
        check()
    else:  # where torch's own checks wait; its _lazy_call would read the source of every frame first
        cuda._queued_calls.append((check, [f"  import {PACKAGE}\n"]))


def path(name: str) -> str:
    """Return the absolute path of a file of the variant that fits: a library, a program, data. Opens nothing.

    ``name`` is the path at which CMake installed the file, ``libcodec6.so`` or ``kernels/add.ptx``, or its last part.
    """
    files = _variant_for_programs()["files"]
    names = {file["name"] or os.path.basename(file["path"]): file for file in files}
    found = [names[name]] if name in names else [file for each, file in names.items() if each.endswith(f"/{name}")]
    if len(found) != 1:
        what = "several files" if found else "no file"
        wanted = _plain(name, 60)
        raise ImportError(f"{PACKAGE}: its variant has {what} called {wanted!r}, but: {', '.join(sorted(names))}")
    _inspect(found[0])
    return _path(found[0])


def library_path() -> str:
    """Return the absolute path of the library that registers operators; one a line if there are several.

    It is for programs without Python. Raises ImportError if there is no such library.
    """
    libraries = [file for file in _variant_for_programs()["files"] if file["kind"] == "library"]
    registering = [file for file in libraries if file["registers"]]
    if registering:
        for file in registering:
            _inspect(file)
        return "\n".join(_path(file) for file in registering)
    if not libraries:
        raise ImportError(f"{PACKAGE} has Python modules alone, no library for programs without Python")
    names = [file["name"] or os.path.basename(file["path"]) for file in libraries]
    raise ImportError(
        f"{PACKAGE}: no library that load() opens registers operators, so say which one you mean: {', '.join(names)}. "
        f"Type: python -m {PACKAGE}._variants --path {names[0]}"
    )


def _variant_for_programs() -> Variant:
    choice = choose()
    if choice.idle:
        raise ImportError(f"{PACKAGE}: no variant is chosen, as {choice.idle}")
    variant: Variant = choice.variant
    return variant


# 6. The command line -------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m <package>._variants``; exit status 1 if no variant fits or a check fails, 2 for wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # file names may have any bytes
    actions: Dict[str, Callable[..., str]] = {
        "": explain,
        "--json": _as_json,
        "--library-path": library_path,
        "--check": _check,
        "--path": path,
        "--build": _build_now,
        "--cache": _show_cache,
        "--clear-cache": _clear_cache,
    }
    option, names = (arguments[0], arguments[1:]) if arguments else ("", [])
    if option not in actions or len(names) != (1 if option == "--path" else 0):
        options = "--json | --library-path | --check | --path NAME | --build | --cache | --clear-cache"
        print(f"usage: python -m {PACKAGE}._variants [{options}]", file=sys.stderr)
        return 2
    try:
        print(actions[option](*names))
        if option in ("--cache", "--clear-cache"):
            return 0
        choice = choose(must=False)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever a broken torch raises when it is imported
        print(f"{PACKAGE}: torch cannot be imported: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0 if choice.variant or choice.idle else 1


def explain() -> str:
    """Return the facts, the verdict on each variant, and the remedy if none fits. Imports nothing but torch."""
    choice = choose(must=False)
    lines = [str(choice), *(f"  {label}: {verdict}" for label, verdict in choice.verdicts().items())]
    if choice.variant is None and not choice.idle:
        lines += remedy(choice, choice.variants) if choice.variants else []
        lines += _offer() if "fallback" in DATA and choice.here["torch"] else []
    return "\n".join(lines)


def _as_json() -> str:
    import json

    choice = choose(must=False)
    files = choice.variant["files"] if choice.variant else ()
    paths = {file["name"]: _path(file) for file in files if file["name"]}
    found: Dict[str, Any] = {"root": ROOT, "facts": choice.here, "chosen": choice.label}
    found.update(verdicts=choice.verdicts(), paths=paths, built=bool(choice.variant and choice.variant.get("built")))
    if choice.variant is None and not choice.idle:
        found["remedy"] = remedy(choice, choice.variants) if choice.variants else []
    return json.dumps({**DATA, **found}, indent=2)


def _build_now() -> str:
    """Build for the installed torch, even if no variable allows it, unless one forbids it."""
    choice = choose(must=False)
    if choice.variant:
        return f"{choice.label} {'was built here' if choice.variant.get('built') else 'fits'}: nothing is to be built"
    if choice.idle:
        raise ImportError(f"{PACKAGE}: nothing is built, as {choice.idle}")
    if "fallback" not in DATA or not choice.here["torch"] or _allowed() is False:
        raise ImportError(_refusal_of_all(choice))
    return f"{_build(choice)['label']} is built, and loaded from now on"


def _kept() -> List[str]:
    """Return the folders in the cache with builds of this package, for every torch."""
    of_others = _of_others()
    if of_others:
        raise ImportError(f"{PACKAGE}: {of_others}")
    found = []
    for folder in ("views", "built", "failed"):
        try:
            names = os.listdir(f"{_cache()}/{folder}")
        except OSError:
            continue
        found += [f"{_cache()}/{folder}/{name}" for name in sorted(names) if name.startswith(f"{_distribution()}-")]
    return found


def _show_cache() -> str:
    """Return the cache folder and this package's builds in it, each with its torch."""
    import json

    lines = [_cache() or "no folder: neither HOME nor TORCH_EXT_BUILD_CACHE names one"]
    for folder in _kept():
        if os.path.isfile(f"{folder}/variant.json"):
            with open(f"{folder}/variant.json", encoding="utf-8") as stream:
                said = json.load(stream)
            lines.append(f"  {said['variant']['label']}, for {said['torch']}")
    return "\n".join(lines)


def _clear_cache() -> str:
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
        raise ImportError(f"{PACKAGE}: {left[0]} cannot be removed")
    return f"removed {len(kept)} from {_cache()}"


# --check runs this in another process, since a library may kill the process that opens it.
_CHECK = """
import importlib, sys
import torch
sys.path[:] = sys.argv[2:]
names = torch._C._dispatch_get_all_op_names
before = set(names())
importlib.import_module(sys.argv[1]).load()
print(*sorted(set(names()) - before), sep=", ")
"""


def _check() -> str:
    """Compare every file of the chosen variant with its hash, load it in another process, list its operators."""
    import subprocess

    choice = choose()
    if choice.idle:
        raise ImportError(f"{PACKAGE}: nothing is checked, as {choice.idle}")
    for file in choice.variant["files"]:
        _inspect(file, whole=True)
    command = [sys.executable, "-c", _CHECK, f"{PACKAGE}._variants", *sys.path]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ImportError(f"{choice.label} failed: the process that loaded it ended with status {done.returncode}")
    return f"{choice.label} works; its operators: {done.stdout.decode().splitlines()[-1] or 'none'}"


# 7. The data ---------------------------------------------------------------------------------------------------------

# distribution      the name that users install
# package           the import name that it was built under
# editable          the project's folder, only in an editable install
# partial           the entries of the matrix that were left out, in a wheel that is to be merged with others
# cut               the wheels that hold the other variants, in one that was cut from a wheel with all of them
# here              the wheel was built on the machine where it was installed, only for the torch there
# fallback          only if the wheel holds its sources: their digest, and whether the author allows a build (default)
# variants          sorted by torch; of each:
#   label           its name
#   snapshot        the version of torch that it was built for, only for a pre-release
#   torch           the major.minor that it serves; with `stable_abi`, the oldest of those that it serves
#   cuda            the CUDA it was built for; None: CPU
#   archs           compute capabilities that its device code runs on: the first and the last
#   cxx11_abi       the C++ ABI of torch that it needs; None: either
#   on_default_index  whether torch's default index has builds with that ABI
#   cp              the first and the last CPython that torch has wheels for
#   python          the Python that its modules are for (cp311, abi3-cp39); None: any
#   machine, libc, libc_floor  the processor, the C library and the oldest version of it that suffices
#   files           its files; of each:
#     path, size, sha256  below _torch_ext; in bytes; in hex
#     name          the author's, below the install prefix; "" for third-party libraries that were copied in
#     kind          library, module (of Python, compiled), graft (a third-party library), python (a module's
#                   source), program, data
#     ends          the CRC-32 of its first and last 512 KiB; None: not known
#     module        the import name below the package, for modules
#     registers     whether load() opens it: it registers operators or classes with torch, and the package does not
#                   open it itself
#     namespaces    the namespaces that it opens with TORCH_LIBRARY, as far as the build could tell
#     operators     the operators that it defines, with namespace and overload, as far as the build could tell
DATA: Dict[str, Any] = {"distribution": "example-distribution", "package": "example_package", "variants": []}

PACKAGE: str = __package__ or DATA["package"]  # the import name, which need not be the one it was built under
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_torch_ext")

if __name__ == "__main__":
    # The file was run by its path, since the package cannot be imported: its folder must not hide other modules.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(ROOT)]
    raise SystemExit(main(sys.argv[1:]))
