"""Loads the one compiled variant of this package that fits the torch installed here.

Written by hatch-torch-ext; only ``DATA``, at the end, is of this package. Its ``__init__`` calls ``load()``;
``python -m <package>._variants`` explains the choice and loads nothing. The parts, in the order of the work:

1. Facts: read the installed torch, Python, the machine, the C library.
2. Selection: check every variant by every rule. Pure: no file is opened.
3. Loading: check and open the files of the variant chosen, once in a process.
4. The loader's other files, for what few processes need: ``_torch_ext/help.py`` (messages with their remedies, more
   checks, the command line) and, only in packages that hold their sources, ``_torch_ext/build.py``.

Imports are few and late, since they cost time. The syntax is that of Python 3.8.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False  # to import `typing` takes longer than all the rest
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

    Facts = Dict[str, Any]  # see facts()
    Variant = Dict[str, Any]  # an item of DATA["variants"]
    File = Dict[str, Any]  # an item of a variant's "files"
    Reason = Tuple[str, str, str]  # the rule, what the variant was built for, the fact here
    Reasons = Dict[str, List[Reason]]  # for every label, those against it
    Numbers = Tuple[int, ...]  # of a version: (12, 8)
    Public = TypeVar("Public", bound=Callable[..., Any])
else:  # names for what reads annotations in a process: beartype, typeguard, Sphinx
    Any = Facts = Variant = File = Reason = Reasons = Numbers = Public = object
    Callable = Dict = List = Optional = Sequence = Tuple = type("", (), {"__class_getitem__": lambda *_: object})


class TorchExtWarning(RuntimeWarning):
    """What was loaded works, but perhaps not as the user expects."""


class LoadError(ImportError):
    """A reason why nothing is loaded. The function ``topic`` of help.py gets it with ``details``, and adds a remedy."""

    def __init__(self, reason: str, topic: str = "", *details: Any) -> None:
        super().__init__(reason)
        self.topic, self.details = topic, details


def _public(function: Public) -> Public:
    """Return ``function`` with each refusal raised from this one line, where the user's traceback ends."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except LoadError as refusal:
            raise ImportError(_explained(refusal)) from None

    call.__name__, call.__qualname__, call.__doc__ = function.__name__, function.__qualname__, function.__doc__
    return call  # type: ignore[return-value]


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
    if hasattr(torch, "a_name_that_torch_does_not_have"):
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
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):  # of musl, which does not tell its version at all
        return ("musl" if sys.platform == "linux" else ""), ""
    return name, version


def _python_tag() -> str:
    """Return the interpreter's tag as wheels have it: ``cp311``, ``cp313t`` (free-threaded), ``pypy310``."""
    name = sys.implementation.name.replace("cpython", "cp")
    threading = "t" if "t" in getattr(sys, "abiflags", "") else ""
    return f"{name}{sys.version_info[0]}{sys.version_info[1]}{threading}"


def _import_torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    if not (hasattr(torch, "version") and hasattr(torch, "_C")):
        found = getattr(torch, "__file__", None) or [*getattr(torch, "__path__", ()), "something without a file"][0]
        raise LoadError(
            f"{PACKAGE}: `import torch` finds {_plain(found, 400)}, which is not PyTorch and hides it. "
            "Rename it, or take its folder off sys.path"
        )
    return torch


def _backend(torch: Any) -> str:
    for name, backend in ("hip", "ROCm"), ("xpu", "XPU"), ("cuda", "CUDA {}"):
        if version := getattr(torch.version, name, None):
            return backend.format(version)
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
    return text.isascii() and text.isdigit() and len(text) < 10


def _machine_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    if here["system"] == "linux" and here["machine"] == variant["machine"]:
        return None
    return "machine", f"linux {variant['machine']}", f"{here['system']} {here['machine']}"


def _libc_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require the same kind of C library, not older than the variant's symbols need."""
    if not here["libc"]:
        return None
    same_kind = here["libc"] == variant["libc"]
    if same_kind and not (here["libc_version"] and _numbers(here["libc_version"]) < _numbers(variant["libc_floor"])):
        return None
    needed = f"{variant['libc']} {variant['libc_floor']} or newer"
    return "libc", needed, f"{here['libc']} {here['libc_version']}".strip()


def _python_rule(variant: Variant, here: Facts) -> Optional[Reason]:
    """Require the Python that the modules are for or, on the limited API, that one or a newer one."""
    needed, mine = variant["python"], here["python"]
    if needed is None or needed == mine:
        return None
    # A free-threaded Python (cp313t) has no limited API, and other interpreters have none either.
    has_abi3 = mine.startswith("cp3") and _is_number(mine[3:])
    if needed.startswith("abi3-cp3") and has_abi3 and int(mine[3:]) >= int(needed[len("abi3-cp3") :]):
        return None
    return "python", needed, mine


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
        self, here: Facts, variants: Sequence[Variant], variant: Any, reasons: Reasons, idle: str = ""
    ) -> None:
        self.here, self.variants, self.variant = here, variants, variant
        self.reasons, self.idle = reasons, idle

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
        return "; ".join(f"built for {built_for}, found {have}" for _, built_for, have in self.reasons[label])

    def table(self) -> str:
        """Return the facts, and a line with the reasons against each variant."""
        return "\n".join([str(self), *(f"  {label}: {self.against(label) or 'fits'}" for label in self.reasons)])

    def verdicts(self) -> Dict[str, str]:
        """Return for every label why it was chosen or rejected."""
        return dict(_helped("verdicts", {label: self.against(label) for label in self.reasons}, self))


def select(here: Facts, variants: Sequence[Variant], *, prerelease: bool = False, forced: str = "") -> Choice:
    """Choose among ``variants`` for the facts ``here``. ``forced`` is a label that the user insists on."""
    installed = _Release(here["torch"])
    reasons = {each["label"]: _objections(each, here, installed, prerelease=prerelease) for each in variants}
    if forced:
        candidates = [each for each in variants if each["label"] == forced]
    else:
        candidates = [each for each in variants if not reasons[each["label"]]]
    return Choice(here, variants, max(candidates, key=_rank, default=None), reasons)


NOTHING = "none"  # the value of TORCH_EXT_VARIANT that loads no variant: for only the Python side of the package


def _choose(*, must: bool = True) -> Choice:
    """Choose for this process and its environment variables; with ``must``, raise ImportError if nothing fits."""
    variants = DATA["variants"]
    labels = [each["label"] for each in variants]
    variable, forced = _setting("VARIANT")
    if forced == NOTHING:
        return _idle(_facts_without_torch(), f"{variable}={NOTHING}")
    if forced and forced not in labels:
        reason = f"{PACKAGE} has no variant {_plain(forced, 60)!r} ({variable}), only {', '.join(labels)}"
        raise LoadError(f"{reason}. Name one of these, or none: unset {variable}")
    here = facts()
    if here.get("mocked"):
        return _idle(here, "torch is a mock")
    choice = select(here, variants, prerelease=_setting("PRERELEASE")[1] != "", forced=forced)
    return _nothing_fits(choice, must=must) if choice.variant is None else choice


choose = _public(_choose)


def _idle(here: Facts, why: str) -> Choice:
    return Choice(here, DATA["variants"], None, {each["label"]: [] for each in DATA["variants"]}, why)


def _nothing_fits(choice: Choice, *, must: bool) -> Choice:
    """Use what was built here, or build it if that is allowed; else refuse if ``must``, or return the choice."""
    if "fallback" in DATA and choice.here["torch"]:
        try:
            build = _part("build")
        except OSError:  # a half-deleted installation
            pass
        else:
            choice = build.instead(choice, must=must)
    if choice.variant is None and must:
        raise _no_variant(choice)
    return choice


def _no_variant(choice: Choice) -> LoadError:
    reason = f"{PACKAGE}: none of its compiled variants ({len(choice.variants)}) fits here."
    return LoadError(f"{reason}\n{choice.table()}", "nothing_fits", choice)


_NO = ("0", "false", "no", "off")


def _setting(name: str) -> Tuple[str, str]:
    """Return the environment variable for ``name`` and its value; "" for a value that means no.

    MY_PKG_TORCH_EXT_<name>, only for this package, overrides TORCH_EXT_<name>, for all packages with such a loader.
    """
    variable = f"TORCH_EXT_{name}"
    own = f"{DATA['package'].replace('.', '_').upper()}_{variable}"
    if own in os.environ:
        variable = own
    value = os.environ.get(variable, "")
    return variable, ("" if value.lower() in _NO else value)


def _plain(text: str, limit: int) -> str:
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:limit])
    return shown if len(text) <= limit else f"{shown}..."


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, TorchExtWarning, stacklevel=4)


# 3. Loading ----------------------------------------------------------------------------------------------------------


@_public
def load() -> Choice:
    """Load the variant that fits, once in a process, and return it; ImportError if none does.

    With ``TORCH_EXT_VARIANT=none``, or if torch is a mock, nothing is loaded, and the choice has no ``variant``.
    """
    if getattr(sys, "argv", ["embedded"])[:1] == ["-m"] and _helped("is_asked", False):
        raise SystemExit(main(sys.argv[1:]))
    if not _in_main_interpreter():
        remedy = "use the main one (threads and processes are fine; mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        raise LoadError(f"{PACKAGE}: torch does not work in a sub-interpreter: {remedy}")
    choice = _choose(must=True)
    if _setting("TRACE")[1]:
        _helped("trace", None, choice)
    if choice.idle:
        if choice.here.get("mocked"):
            _warn(f"{PACKAGE}: no compiled variant is loaded, as {choice.idle}: operators and modules are missing")
        return choice
    shared = _process()
    with shared.lock:
        first = _open(choice.variant, shared)
        _Modules(choice.variant).install()
    if first:
        for text in _helped("cautions", (), choice) if _is_unusual(choice) else ():
            _warn(text)
        _watch_devices(choice)
    for file in choice.variant["files"]:  # not under our lock: imports take one too, and could deadlock
        if file["registers"] and file["module"]:
            from importlib import import_module

            import_module(f"{PACKAGE}.{file['module']}")
    return choice


def _is_unusual(choice: Choice) -> bool:
    installed = _Release(choice.here["torch"])
    rebuilt = installed.final and not installed.of_torch
    for_gpus = choice.here["backend"] != "CPU" and not choice.variant["cuda"]
    return rebuilt or for_gpus or choice.reasons[choice.label] != []


def _in_main_interpreter() -> bool:
    if sys.version_info >= (3, 12):
        return bool(_thread._is_main_interpreter())
    import ctypes

    api: Any = getattr(ctypes, "pythonapi", None)  # PyPy's has none
    known = hasattr(api, "PyInterpreterState_Get")
    return not known or bool(api.PyInterpreterState_Get() == api.PyInterpreterState_Main())


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
        raise LoadError(
            f"{PACKAGE}: {variant['label']} of {_plain(ROOT, 400)} cannot be loaded, as {before['label']} of "
            f"{_plain(before['root'], 400)} is: operators can be registered once in a process. "
            "Start a new one, and keep one of the two on its path"
        )
    for file in variant["files"]:
        if file["kind"] not in ("program", "data"):  # the package itself opens these
            _inspect(file)
    unopened = [file for file in registering if file["sha256"] not in {*shared.files, *shared.modules}]
    for file in unopened:  # none is opened where one cannot be
        _refuse_what_is_taken(file, variant, shared)
    for file in [each for each in unopened if not each["module"]]:
        _refuse_what_is_taken(file, variant, shared, by=DATA["distribution"])  # by one of these
        _open_library(file, variant, shared)
        shared.files[file["sha256"]] = _path(file)
    loaded = {"label": variant["label"], "root": ROOT, "digests": digests, "kernel": "kernel" in DATA}
    for kind in ("namespaces", "operators"):
        loaded[kind] = [name for file in registering for name in file[kind]]
    if any(file.get("fragments") for file in registering):
        loaded["operators"] += _helped("defined_by", [], registering, shared)
    shared.packages.setdefault(key, loaded)
    return not before


def _refuse_what_is_taken(file: File, variant: Variant, shared: Any, by: str = "") -> None:
    """Refuse a library that registers what is registered, which ends the process; ``by`` is whose that is, if known."""
    tests = (("namespaces", _is_namespace_open), ("operators", _is_defined))
    taken = [(kind, name) for kind, is_taken in tests for name in file[kind] if is_taken(name)]
    if not taken and (file.get("fragments") or file.get("classes")):
        taken = _helped("taken", [], file, shared)
    if taken and not _is_open(_path(file)):
        reason = f"{PACKAGE}: {variant['label']} cannot be loaded: `{taken[0][1]}` is registered already"
        raise LoadError(reason, "registered_twice", *taken[0], variant, shared, by)


def _is_namespace_open(namespace: str) -> bool:
    """Return whether TORCH_LIBRARY has opened ``namespace``.

    The namespace is opened from Python for this: torch then raises an exception, where a library would end the process.
    """
    from torch import _C

    try:
        _C._dispatch_library("DEF", namespace, "")  # not kept: it is closed at once
    except RuntimeError as error:
        return "Previous registration of TORCH_LIBRARY" in str(error)
    except (AttributeError, TypeError):  # a later torch may lack this function
        pass
    return False


def _is_defined(operator: str) -> bool:
    from torch import _C

    try:
        if _C._dispatch_has_kernel(operator):  # this looks into a dictionary; the rest takes longer
            name, _, overload = operator.partition(".")
            _C._dispatch_find_schema_or_throw(name, overload)
            return True
    except (AttributeError, RuntimeError, TypeError):  # only kernels; or a later torch
        pass
    return False


def _is_open(path: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _open_library(file: File, variant: Variant, shared: Any) -> None:
    import torch

    try:
        _bringing(lambda: torch.ops.load_library(_path(file)))
    except OSError as error:
        reason = f"{PACKAGE}: {variant['label']} cannot be opened: {_plain(str(error.__cause__ or error), 1000)}"
        raise LoadError(reason, "cannot_open", file) from error  # torch wraps the dynamic linker's error
    if file.get("classes"):
        _helped("note_classes", None, shared)


def _bringing(opening: Callable[[], Any], module: Optional[File] = None) -> Any:
    """Call ``opening``; where the dynamic linker misses a library that another wheel has, open that and try again."""
    while True:
        try:
            return opening()
        except (ImportError, OSError) as error:  # noqa: PERF203 -- nothing of the file has run: the linker looks first
            reason = str(error.__cause__ or error)
            if not _helped("bring", False, reason):
                known = _helped("cannot_open", reason, reason, module) if module else reason
                if known == reason:  # it may be the module's own error
                    raise
                raise ImportError(known) from error


def _path(file: File) -> str:
    return os.path.join(ROOT, file["path"])  # absolute for a variant that was built on this machine


def _inspect(file: File) -> None:
    """Raise ImportError for a file that differs from the built one: a damaged one may kill the process that opens it.

    Its size and both ends are compared: opening reads little else, and reading a large file in full takes seconds.
    """
    path = _path(file)
    try:
        sound = os.stat(path).st_size == file["size"]
        if sound and file["ends"] is not None:
            sound = _ends(path, file["size"]) == file["ends"]
        sound = sound or _helped("is_as_renewed", False, file)
        problem = "" if sound else "is damaged"
    except NotADirectoryError:
        problem = "is inside an archive, where no library can be opened"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise _unsound(file, problem)


def _unsound(file: File, problem: str) -> LoadError:
    reason = f"{PACKAGE}: {_plain(_path(file), 1000)} {problem} (sha256 {file['sha256']} is expected)"
    return LoadError(reason, "repair", file)


_END = 512 << 10  # bytes


def _ends(path: str, size: int) -> int:
    import zlib

    with open(path, "rb", buffering=0) as stream:
        checksum = zlib.crc32(stream.read(_END))
        if size > _END:
            stream.seek(max(_END, size - _END))
            checksum = zlib.crc32(stream.read(_END), checksum)
    return checksum


class _Modules:
    """Makes the variant's modules importable as ``<package>.<module>``, a name that pickles and graphs can keep."""

    def __init__(self, variant: Variant) -> None:
        self.torch_ext_package = PACKAGE
        self.variant = variant
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
        if file["path"].endswith(".py"):
            return util.spec_from_file_location(name, _path(file))
        if _process().modules.setdefault(file["sha256"], name) != name:
            return util.spec_from_file_location(name, _path(file), loader=self)  # type: ignore[arg-type]
        if file["registers"]:  # another module may have been imported since the variant was loaded
            _refuse_what_is_taken(file, self.variant, _process())
        found: Any = util.spec_from_file_location(name, _path(file))
        create = found.loader.create_module
        found.loader.create_module = lambda spec: _bringing(lambda: create(spec), file)
        return found

    def create_module(self, spec: Any) -> Any:
        """Return the module that was imported under another name: its types can be registered only once."""
        from importlib import import_module

        return import_module(_process().modules[self.files[spec.name]["sha256"]])

    def exec_module(self, module: Any) -> None:
        """Do nothing: the first import ran the module."""


def _watch_devices(choice: Choice) -> None:
    """Compare the GPUs with the compiled architectures once CUDA is initialised, which this does not do itself."""
    variant = choice.variant
    if not variant["archs"]:
        return
    from torch import cuda

    def check() -> None:
        for index in range(cuda.device_count()):
            major, minor = cuda.get_device_capability(index)
            here = 10 * major + minor
            if not any(low <= here <= high and here not in but for low, high, *but in variant["archs"].values()):
                _warn(
                    f"{PACKAGE}: no code of {variant['label']} runs on cuda:{index} (capability {major}.{minor}), "
                    f"only on {', '.join(variant['archs'])}. Try: {_helped('update', 'a newer release', choice)}"
                )

    if cuda.is_initialized():
        check()
    else:  # where torch's own checks wait; its _lazy_call would read the source of every frame first
        cuda._queued_calls.append((check, [f"  import {PACKAGE}\n"]))


@_public
def path(name: str) -> str:
    """Return the absolute path of a file of the variant that fits: a library, a program, data. Opens nothing.

    ``name`` is the path at which CMake installed the file, ``libcodec6.so`` or ``kernels/add.ptx``, or its last part.
    """
    files = _variant_for_programs()["files"]
    names = {file["name"] or os.path.basename(file["path"]): file for file in files}
    found = [names[name]] if name in names else [file for each, file in names.items() if each.endswith(f"/{name}")]
    if len(found) != 1:
        reason = f"{PACKAGE}: its variant has {'several files' if found else 'no file'} called {_plain(name, 60)!r}"
        raise LoadError(f"{reason}, but: {', '.join(sorted(names))}")
    _inspect(found[0])
    return _path(found[0])


@_public
def library_path() -> str:
    """Return the absolute path of the library that registers operators; one a line if there are several.

    It is for programs without Python. Raises ImportError if there is no such library.
    """
    return str(_part("help").library_path())


def _variant_for_programs() -> Variant:
    choice = _choose(must=True)
    if choice.idle:
        raise LoadError(f"{PACKAGE}: no variant is chosen, as {choice.idle}")
    variant: Variant = choice.variant
    return variant


# 4. The loader's other files -----------------------------------------------------------------------------------------

_parts: Dict[str, Any] = {}


def _part(name: str) -> Any:
    """Return another file of the loader as a module, which gets this one as ``loader``; OSError if it is missing."""
    if name not in _parts:
        from importlib import util
        from types import SimpleNamespace

        file = os.path.join(ROOT, f"{name}.py")
        if not os.path.exists(file) and os.path.exists(f"{file}c"):  # installed without sources
            file += "c"
        spec: Any = util.spec_from_file_location(f"{PACKAGE}._torch_ext.{name}", file)
        part: Any = util.module_from_spec(spec)
        part.loader = SimpleNamespace(**globals())  # this module need not be in sys.modules
        try:
            spec.loader.exec_module(part)
        except NotADirectoryError:  # in a zip archive, which knows its files by their names in it
            archive = globals()["__loader__"]
            exec(archive.get_data(os.path.relpath(file, archive.archive)), part.__dict__)  # noqa: S102
        _parts[name] = part
    return _parts[name]


def _helped(function: str, plain: Any, *details: Any) -> Any:
    """Return what a function of help.py gives, or ``plain`` where that file is missing or damaged."""
    try:
        return getattr(_part("help"), function)(*details)
    except Exception:  # noqa: BLE001 - whatever a damaged file raises
        return plain


def _explained(error: LoadError) -> str:
    plain = f"{error}\n{_without_help()}"
    return str(_helped(error.topic, plain, str(error), *error.details)) if error.topic else str(error)


def _without_help() -> str:
    again = f"-e {DATA['editable']}" if "editable" in DATA else f"--force-reinstall --no-deps {DATA['distribution']}"
    how = "fetch or write the kernel again" if "kernel" in DATA else f"pip install {again}"
    if "__torch_package__" in globals():
        return f"(when you export, leave the package to the installed one: exporter.extern('{DATA['package']}.**'))"
    return f"({_plain(ROOT, 400)}/help.py, which explains more, is missing or damaged: {_frozen() or how})"


def _frozen() -> str:
    """Return how a frozen program gets every file of the package; "" elsewhere."""
    nuitka = getattr(globals().get("__compiled__"), "standalone", False)
    if not getattr(sys, "frozen", nuitka):
        return ""
    place = f"{PACKAGE.replace('.', '/')}/_torch_ext"
    source = f"$(python -c 'import {PACKAGE} as it; print(*it.__path__)')/_torch_ext"
    how = f'pyinstaller --add-data "{source}:{place}"'
    if nuitka:
        how = f'nuitka --include-raw-dir="{source}={place}"'
    elif not hasattr(sys, "_MEIPASS"):
        how = f'cx_Freeze, include_files = [(".../{place}", "lib/{place}")]'
    return f"make the program again with all of {place}, without --strip: {how}"


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m <package>._variants``; exit status 1 if no variant fits or a check fails, 2 for wrong usage."""
    try:
        run = _part("help").main
    except Exception:  # noqa: BLE001 - whatever a damaged file raises
        print(choose(must=False).table(), _without_help(), sep="\n")
        return 1
    return int(run(arguments))


# 5. The data; the page "loader" of hatch-torch-ext's documentation explains each field -------------------------------

DATA: Dict[str, Any] = {"distribution": "example-distribution", "package": "example_package", "variants": []}

PACKAGE: str = __package__ or DATA["package"]  # the import name, which need not be the one it was built under
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_torch_ext")

if __name__ == "__main__":
    # The file was run by its path, since the package cannot be imported: its folder must not hide other modules.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(ROOT)]
    raise SystemExit(main(sys.argv[1:]))
