"""Which of this package's compiled variants fits the torch that is installed here: chosen first, then loaded once.

Written by hatch-torch-ext; the code is the same in every package, ``DATA`` is this one's. ``load()`` belongs into its
``__init__``, and ``python -m <package>._variants`` explains the choice without loading anything.
"""

from __future__ import annotations

import _thread
import os
import sys
import warnings

TYPE_CHECKING = False  # `typing` takes longer to import than all the rest, and only type checkers ask for it
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Sequence, Tuple

    Facts = Dict[str, Any]  # see facts()
    Variant = Dict[str, Any]  # an item of DATA["variants"]
    Reason = Tuple[str, str, str]  # the rule, what the variant was built for, what is here

# A variant serves the release `torch`, with `stable_abi` newer ones too. None means: CPU, any Python, either C++ ABI.
# `archs`: capabilities that code runs on; `cp`: the first and last CPython of torch's wheels; `files`: in _torch_ext.
DATA: Dict[str, Any] = {"distribution": "example-distribution", "package": "example_package", "variants": []}

PACKAGE: str = __package__ or DATA["package"]  # the import name, which need not be the one it was built under
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_torch_ext")
UPDATE = f"pip install -U {DATA['distribution']}"
_ABI = {True: "the C++11 ABI", False: "the C++ ABI from before C++11"}


class TorchExtWarning(RuntimeWarning):
    """What was loaded works, but perhaps not as the user expects."""


def facts() -> Facts:
    """Read what the choice depends on: machine, Python, torch ("" where there is none). Touches no device."""
    try:
        libc, _, libc_version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        libc, libc_version = "musl" if sys.platform == "linux" else "", ""  # musl does not tell its version
    python = "{}{}{}".format(sys.implementation.name.replace("cpython", "cp"), *sys.version_info)
    here: Facts = {"torch": "", "backend": "CPU", "cxx11_abi": True, "libc": libc, "libc_version": libc_version}
    here["python"] = python + "t" * ("t" in getattr(sys, "abiflags", ""))  # free-threaded: cp313t
    here.update(system=sys.platform, machine=os.uname().machine if os.name == "posix" else "unknown")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return here
    if not hasattr(torch, "version"):
        raise ImportError(f"{PACKAGE}: `import torch` does not find PyTorch, but what hides it: {torch.__spec__}")
    here.update(torch=str(torch.__version__), cxx11_abi=bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    for name, backend in ("cuda", f"CUDA {torch.version.cuda}"), ("xpu", "XPU"), ("hip", "ROCm"):
        here["backend"] = backend if getattr(torch.version, name, None) else here["backend"]
    return here


def _numbers(version: str, known: Dict[str, Tuple[int, ...]] = {}) -> Tuple[int, ...]:  # noqa: B006 -- a cache
    return known.get(version) or known.setdefault(version, tuple(map(int, __import__("re").findall("[0-9]+", version))))


def _torch_version(version: str) -> Tuple[Tuple[int, ...], bool, bool]:
    """Return (major, minor), whether that is final, and whether the build is a release (``2.8.0+cu128``)."""
    public, _, local = version.partition("+")
    final = all(part.isdigit() for part in public.replace(".post", ".").split("."))
    release = final and (not local or local.split(".")[0].rstrip("0123456789") in ("cpu", "cu", "rocm", "xpu"))
    return (*_numbers(public), 0, 0)[:2], final, release


def _objections(variant: Variant, here: Facts, version: Any, *, prerelease: bool) -> Iterable[Reason]:
    if (here["system"], here["machine"]) != ("linux", variant["machine"]):
        yield "machine", f"linux {variant['machine']}", f"{here['system']} {here['machine']}"
    libc, floor, have = variant["libc"], variant["libc_floor"], here["libc_version"]
    if here["libc"] and (libc != here["libc"] or (have and have != floor and _numbers(have) < _numbers(floor))):
        yield "libc", f"{libc} {floor} or newer", f"{here['libc']} {have}".strip()
    python, mine = variant["python"], here["python"]
    abi3 = python and python.startswith("abi3-cp3") and mine[:3] == "cp3" and mine[3:].isdigit()  # cp313t has no abi3
    if python not in (None, mine) and not (abi3 and int(mine[3:]) >= int(python[len("abi3-cp3") :])):
        yield "python", python, mine
    (minor, final, release), stable, wanted = version, variant["stable_abi"], _numbers(variant["torch"])
    name = f"torch {variant['torch']}{' or newer' * stable}"
    if not here["torch"] or (minor < wanted if stable else minor != wanted):
        yield "torch", name, here["torch"] or "no torch"
    elif not prerelease and not (release or (stable and (final or minor > wanted))):
        yield "snapshot", f"releases of {name}", f"the snapshot {here['torch']}"
    if here["torch"] and variant["cxx11_abi"] not in (None, here["cxx11_abi"]):
        yield "abi", _ABI[variant["cxx11_abi"]], _ABI[here["cxx11_abi"]]
    if here["torch"] and variant["cuda"]:
        want, mine = _numbers(variant["cuda"]), _numbers(here["backend"].partition("CUDA ")[2])
        if mine[:1] != want[:1] or mine < want:
            yield "backend", f"CUDA {variant['cuda']} or a newer {want[0]}.x", f"a torch for {here['backend']}"


def _rank(variant: Variant) -> Tuple[Any, ...]:
    """Sort the better variant last: CUDA over CPU, exact over stable, newer CUDA, Python-specific over agnostic."""
    newer, python = (_numbers(variant["cuda"] or ""), _numbers(variant["torch"])), variant["python"] or ""
    specific = bool(python), "abi3" not in python, len(python), python
    return bool(variant["cuda"]), not variant["stable_abi"], newer, specific, variant["label"]


def select(here: Facts, variants: Sequence[Variant], *, prerelease: bool = False, forced: str = "") -> Choice:
    """Choose among ``variants`` for the facts ``here``; pure. ``forced`` is a label that the user insists on."""
    known = _torch_version(here["torch"])
    reasons = {each["label"]: list(_objections(each, here, known, prerelease=prerelease)) for each in variants}
    fitting = [v for v in variants if (v["label"] == forced if forced else not reasons[v["label"]])]
    return Choice(here, variants, max(fitting, key=_rank, default=None), reasons)


class Choice:
    """The outcome of ``select``: the ``variant`` chosen, or None, and the ``reasons`` against each one."""

    def __init__(self, here: Facts, variants: Sequence[Variant], best: Any, reasons: Dict[str, List[Reason]]) -> None:
        self.here, self.variants, self.variant, self.reasons = here, variants, best, reasons
        self.label: str = best["label"] if best else ""
        self.files = [f"{ROOT}/{file['path']}" for file in best["files"] if file["registers"]] if best else []

    def __str__(self) -> str:
        torch = "torch {torch} ({backend}, {abi})" if self.here["torch"] else "no torch"
        told = f"Here: {torch}, {{python}}, {{system}} {{machine}}, {{libc}} {{libc_version}}"
        return told.format(abi=_ABI[self.here["cxx11_abi"]], **self.here).rstrip(" ,")

    def against(self, label: str) -> str:
        """Say why the variant ``label`` does not fit, or ""."""
        return "; ".join(f"built for {wanted}, here is {have}" for _, wanted, have in self.reasons[label])

    def verdicts(self) -> Dict[str, str]:
        """Say for every label why it was taken or left."""
        words = {label: f"rejected: {self.against(label)}" for label in self.reasons}
        words.update({label: f"fits, but {self.label} is better" for label, why in self.reasons.items() if not why})
        if self.variant:
            words[self.label] = f"forced, though {self.against(self.label)}" if self.reasons[self.label] else "chosen"
        return words

    def refusal(self, variants: Sequence[Variant], head: str) -> str:
        """Say why ``variants`` do not fit, one by one where they are few, else by rule; then what to do."""
        lines: List[str] = []
        groups: Dict[Tuple[str, str], List[str]] = {}
        for label in (variant["label"] for variant in variants):
            line, reasons = f"  {label}: {self.against(label)}", self.reasons[label]
            lines.append(line if len(line) <= 120 else f"  {label}: built for {', '.join(r[1] for r in reasons)}")
            groups.setdefault((reasons[0][0], reasons[0][2]), []).append(reasons[0][1])
        if len(lines) > 6:
            kinds = {key: list(dict.fromkeys(wants)) for key, wants in groups.items()}
            told = {key: ", ".join(k if len(k) < 4 else [k[0], "...", k[-1]]) for key, k in kinds.items()}
            lines = [f"  {len(wants)} built for {told[key]}; here is {key[1]}" for key, wants in groups.items()]
        tail = ["or a newer release, if there is one:", f"  {UPDATE}", f"More: python -m {PACKAGE}._variants"]
        return "\n".join([f"{PACKAGE}: {head}", str(self), *lines, *self.remedy(variants), *tail])

    def remedy(self, variants: Sequence[Variant]) -> List[str]:
        """Name the nearest torch that this Python and this machine can have."""
        rules = {label: {rule for rule, _, _ in reasons} for label, reasons in self.reasons.items()}
        python = _numbers(self.here["python"])[0]
        possible = [v for v in variants if not rules[v["label"]] & {"machine", "libc"}]
        reachable = [v for v in possible if "python" not in rules[v["label"]] and v["cp"][0] <= python <= v["cp"][1]]
        if not reachable:
            pythons = sorted({v["python"] or "cp{} to cp{}".format(*v["cp"]) for v in possible})
            return [f"Use a Python that it was built for: {', '.join(pythons)}" if pythons else "Use another system,"]
        here = _torch_version(self.here["torch"] or "99.99")[0]  # without a torch, the newest is the nearest

        def nearness(variant: Variant) -> Tuple[Any, ...]:
            torch, other = _numbers(variant["torch"]), "backend" in rules[variant["label"]]
            apart = [-abs(mine - its) for mine, its in zip(here, torch)]
            return variant["on_default_index"], not other, apart, torch, _rank(variant)

        best = max(reachable, key=nearness)
        torch = f"torch>={best['torch']}" if best["stable_abi"] else f"torch=={best['torch']}.*"
        if not best["on_default_index"]:
            return [f"Use a build of {torch} with {_ABI[best['cxx11_abi']]}, which torch's default index has not,"]
        again = " --force-reinstall" * (_numbers(best["torch"]) == here)
        build = f"cu{best['cuda'].replace('.', '')}" if best["cuda"] else "cpu"
        elsewhere = "backend" in rules[best["label"]] or f"+{build[:2]}" in self.here["torch"]
        index = f" --index-url https://download.pytorch.org/whl/{build}" * elsewhere
        risk = ["(or this snapshot, at your own risk: TORCH_EXT_PRERELEASE=1)"] * (rules[best["label"]] == {"snapshot"})
        return ["Install a torch that it was built for:", f'  pip install{again} "{torch}"{index}', *risk]

    def cautions(self) -> Iterable[str]:
        """Say what works with the chosen variant, but perhaps not as the user expects."""
        rejected = [variant for variant in self.variants if variant["cuda"] and self.reasons[variant["label"]]]
        if self.reasons[self.label]:
            yield f"{PACKAGE}: {self.label} was forced, though it was {self.against(self.label)}: it may crash"
        elif rejected and not self.variant["cuda"] and self.here["backend"] != "CPU":
            yield self.refusal(rejected, f"operators for the CPU only are loaded ({self.label}).")


def _asked(name: str) -> str:
    """Return what the user set for this package, else for all packages built this way; "" and "0" are nothing."""
    own = f"{DATA['package'].replace('.', '_').upper()}_TORCH_EXT_{name}"
    value = os.environ.get(own, os.environ.get(f"TORCH_EXT_{name}", ""))
    return "" if value == "0" else value


def choose(*, must: bool = True) -> Choice:
    """Choose for this process and its environment variables; with ``must``, raise ImportError when nothing fits."""
    variants, forced = DATA["variants"], _asked("VARIANT")
    if forced and forced not in (labels := [variant["label"] for variant in variants]):
        raise ImportError(f"{PACKAGE} has no variant {forced!r} (TORCH_EXT_VARIANT), only {', '.join(labels)}")
    choice = select(facts(), variants, prerelease=bool(_asked("PRERELEASE")), forced=forced)
    if must and not choice.variant:
        raise ImportError(choice.refusal(variants, f"none of its compiled variants ({len(variants)}) fits here."))
    return choice


def _inspect(file: Dict[str, Any], *, deep: bool = False) -> None:
    """Raise ImportError for a file that is not as installed: one cut short would kill the process that opens it."""
    path, repair = f"{ROOT}/{file['path']}", f"pip install --force-reinstall --no-deps {DATA['distribution']}"
    try:
        sound = os.stat(path).st_size == file["size"]
        if sound and deep:
            with open(path, "rb") as stream:
                sound = __import__("hashlib").sha256(stream.read()).hexdigest() == file["sha256"]
        problem = "" if sound else "is damaged"
    except NotADirectoryError:
        problem, repair = "lies inside an archive, where no library can be opened", "install the package unpacked"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise ImportError(f"{PACKAGE}: {path} {problem} (sha256 {file['sha256']} is expected). Repair it: {repair}")


def _process() -> Any:
    """Return what all packages of this process share, under any import names: a contract between our releases."""
    if "_torch_ext_loaded" not in sys.modules:
        fresh: Any = type(sys)("_torch_ext_loaded", "The compiled variants that this process has loaded.")
        # (distribution, package) -> what was loaded; sha256 of a library -> its path, of a module -> its import name
        fresh.lock, fresh.packages, fresh.files, fresh.modules = _thread.RLock(), {}, {}, {}
        if sys.modules.setdefault("_torch_ext_loaded", fresh) is fresh and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: setattr(fresh, "lock", _thread.RLock()))  # its owner is gone
    return sys.modules["_torch_ext_loaded"]


def _open(variant: Variant, shared: Any) -> bool:
    """Open the libraries that register, unless this process did; return whether this was the first time."""
    key = (DATA["distribution"], DATA["package"])
    digests = sorted(file["sha256"] for file in variant["files"] if file["registers"])
    before = shared.packages.get(key)
    if before and before["digests"] != digests:
        raise ImportError(
            f"{PACKAGE}: {variant['label']} of {ROOT} cannot be loaded, as {before['label']} of {before['root']} is: "
            "operators can be registered once in a process. Start a new one, and keep one of the two on its path"
        )
    for file in variant["files"]:
        _inspect(file)
    for file in variant["files"]:
        if file["registers"] and not file["module"] and file["sha256"] not in shared.files:
            try:
                __import__("torch").ops.load_library(f"{ROOT}/{file['path']}")
            except OSError as error:
                _inspect(file, deep=True)
                words = error.__cause__ or error  # torch wraps the dynamic linker's own
                raise ImportError(f"{PACKAGE}: {variant['label']} cannot be opened: {words}") from error
            shared.files[file["sha256"]] = f"{ROOT}/{file['path']}"
    shared.packages.setdefault(key, {"label": variant["label"], "root": ROOT, "digests": digests})
    return not before


class _Modules:
    """Makes the variant's modules importable as ``<package>.<module>``: names that pickles and graphs can keep."""

    def __init__(self, variant: Variant) -> None:
        self.torch_ext_package = PACKAGE
        self.files = {f"{PACKAGE}.{file['module']}": file for file in variant["files"] if file["module"]}
        others = [finder for finder in sys.meta_path if getattr(finder, "torch_ext_package", "") != PACKAGE]
        sys.meta_path[:] = [self, *others] if self.files else others

    def find_spec(self, name: str, *_: object) -> Any:
        """Serve the modules of the variant, and no other."""
        if name not in self.files:
            return None
        from importlib import util

        path = f"{ROOT}/{self.files[name]['path']}"
        first = _process().modules.setdefault(self.files[name]["sha256"], name)
        loader: Any = self if first != name and not path.endswith(".py") else None
        return util.spec_from_file_location(name, path, loader=loader)

    def create_module(self, spec: Any) -> Any:
        """Give a module that has another import name already: its types can be registered only once."""
        first = _process().modules[self.files[spec.name]["sha256"]]
        __import__(first)
        return sys.modules[first]

    def exec_module(self, module: Any) -> None:
        """Run nothing: the first import did."""


def _watch_devices(variant: Variant) -> None:
    """Compare the devices with the compiled architectures when CUDA is first used; nothing initialises it here."""
    cuda = __import__("torch").cuda

    def check() -> None:
        for index in range(cuda.device_count()):
            major, minor = cuda.get_device_capability(index)
            if not any(first <= 10 * major + minor <= last for first, last in variant["archs"].values()):
                told = f"no code of {variant['label']} runs on cuda:{index} (capability {major}.{minor})"
                told += f", only on {', '.join(variant['archs'])}. Try: {UPDATE}"
                warnings.warn(f"{PACKAGE}: {told}", TorchExtWarning, stacklevel=2)

    if variant["archs"] and cuda.is_initialized():
        check()
    elif variant["archs"]:  # where torch's own checks wait; its _lazy_call would read the source of every frame first
        cuda._queued_calls.append((check, [f"  import {PACKAGE}\n"]))


def _in_main_interpreter() -> bool:
    if sys.version_info >= (3, 12):
        return bool(_thread._is_main_interpreter())
    api: Any = getattr(__import__("ctypes"), "pythonapi", None)  # PyPy's has none
    return not hasattr(api, "PyInterpreterState_Get") or api.PyInterpreterState_Get() == api.PyInterpreterState_Main()


def load() -> Choice:
    """Load the variant that fits, once in a process, and return it; ImportError when none does."""
    if sys.argv[:1] == ["-m"]:  # `python -m` imports the package first: explain, and load nothing
        frames = __import__("traceback").walk_stack(None)
        if any(frame.f_locals.get("mod_name") == f"{PACKAGE}._variants" for frame, _ in frames):
            raise SystemExit(main(sys.argv[1:]))
    if not _in_main_interpreter():
        remedy = "use the main one (threads and processes are fine; mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        raise ImportError(f"{PACKAGE}: torch does not work in a sub-interpreter: {remedy}")
    choice, shared = choose(), _process()
    if _asked("TRACE") and sys.stderr is not None:
        sys.stderr.write("".join(f"{PACKAGE}: {label}: {verdict}\n" for label, verdict in choice.verdicts().items()))
    with shared.lock:
        first = _open(choice.variant, shared)
        _Modules(choice.variant)
    if first:
        for text in choice.cautions():
            warnings.warn(text, TorchExtWarning, stacklevel=2)
        _watch_devices(choice.variant)
    for file in choice.variant["files"]:  # outside our lock: the import system has its own, and order would matter
        if file["registers"] and file["module"]:
            __import__(f"{PACKAGE}.{file['module']}")
    return choice


def library_path() -> str:
    """Return the absolute path of the library for programs without Python; one a line where there are several."""
    files = [file for file in choose().variant["files"] if file["registers"] and not file["module"]]
    if not files:
        raise ImportError(f"{PACKAGE} has Python modules alone, no library for programs without Python")
    return "\n".join(f"{ROOT}/{file['path']}" for file in files)


def explain(*, as_json: bool = False) -> str:
    """Return the facts, what becomes of each variant, and the remedy when none fits. Loads nothing but torch."""
    choice = choose(must=False)
    if as_json:
        found = {"root": ROOT, "facts": choice.here, "chosen": choice.label, "verdicts": choice.verdicts()}
        return str(__import__("json").dumps({**DATA, **found}, indent=2))
    lines = [str(choice), *(f"  {label}: {verdict}" for label, verdict in choice.verdicts().items())]
    return "\n".join(lines if choice.variant else [*lines, *choice.remedy(choice.variants)])


def _check() -> str:
    """Compare every file of the chosen variant with its hash, load it in a process of its own, list its operators."""
    import subprocess

    choice = choose()
    for file in choice.variant["files"]:
        _inspect(file, deep=True)
    program = (
        "import importlib, sys; sys.path[:] = sys.argv[2:]; import torch; "
        "names = torch._C._dispatch_get_all_op_names; before = set(names()); "
        "importlib.import_module(sys.argv[1]).load(); print(*sorted(set(names()) - before), sep=', ')"
    )
    command = [sys.executable, "-c", program, f"{PACKAGE}._variants", *sys.path]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ImportError(f"{choice.label} failed: the process that loaded it ended with status {done.returncode}")
    return f"{choice.label} works; its operators: {done.stdout.decode().splitlines()[-1] or 'none'}"


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m <package>._variants``; exit status 1 when no variant fits or a check fails, 2 for wrong usage."""
    actions = {"--json": lambda: explain(as_json=True), "--library-path": library_path, "--check": _check, "": explain}
    try:
        if " ".join(arguments) not in actions:
            print(f"usage: python -m {PACKAGE}._variants [{' | '.join([*actions][:-1])}]", file=sys.stderr)
            return 2
        print(actions[" ".join(arguments)]())
        return 0 if choose(must=False).variant else 1
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
