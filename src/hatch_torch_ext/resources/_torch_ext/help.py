"""Messages of the loader with their remedies, checks of its files, and ``python -m <package>._variants``.

``_variants.py`` runs this file where it is needed, and puts itself into it as ``loader``. In each part, what others
call comes first. The syntax is that of Python 3.8.
"""

from __future__ import annotations

import json
import os
import shlex
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

    from hatch_torch_ext.resources import _variants as loader
    from hatch_torch_ext.resources._variants import Choice, Facts, File, LoadError, Variant

# 1. Nothing fits ------------------------------------------------------------------------------------------------------

FEW = 6  # variants that are listed one by one
WIDTH = 120


def nothing_fits(_: str, choice: Choice) -> str:
    """Return why nothing fits, and what to do."""
    head = "it holds no compiled variant, only the sources of one."
    if choice.variants:
        head = "all its variants were pruned from this installation."
    if count := len(_present(choice.variants)):
        head = f"none of its compiled variants ({count}) fits here."
    return refusal(choice, choice.variants, head, _offer(choice))


def refusal(choice: Choice, variants: Sequence[Variant], head: str, offer: Sequence[str] = ()) -> str:
    """Return why ``variants`` do not fit, then what to do: this torch at one's own risk, ``offer``, another torch."""
    present = _present(variants)
    reasons = _one_by_one if len(present) <= FEW else _by_rule
    notes = [line for line in offer if line.startswith("(")]
    first = [*_way_back(variants), *_with_this_torch(choice, present), *(line for line in offer if line not in notes)]
    install = remedy(choice, present)
    newer = "or a newer release, if there is one:"
    if "kernel" in loader.DATA:
        newer = "or another version of the kernel, if one has a variant for this system:"
    if first and install:
        install[0] = f"Or {install[0][0].lower()}{install[0][1:]}"
    elif first:
        newer = newer.capitalize()
    if _is_of_here():
        newer = "or build it for this one, if its matrix has it:"
    lines = [f"{loader.PACKAGE}: {head}", str(choice), *reasons(choice, present), *first, *install, *_other_wheels()]
    return "\n".join([*lines, newer, f"  {update(choice)}", f"More: {_command()}", *notes])


def _present(variants: Sequence[Variant]) -> List[Variant]:
    gone, _back = pruned()
    return [each for each in variants if each["label"] not in gone]


def _one_by_one(choice: Choice, variants: Sequence[Variant]) -> Iterator[str]:
    for label in (variant["label"] for variant in variants):
        line = f"  {label}: {choice.against(label)}"
        if len(line) > WIDTH:  # the facts are in a line above
            line = f"  {label}: built for {', '.join(built_for for _, built_for, _ in choice.reasons[label])}"
        yield line


def _by_rule(choice: Choice, variants: Sequence[Variant]) -> Iterator[str]:
    groups: Dict[Tuple[str, str], List[str]] = {}
    for rule, built_for, have in (choice.reasons[each["label"]][0] for each in variants):
        groups.setdefault((rule, have), []).append(built_for)
    for (_, have), of_rule in groups.items():
        kinds = list(dict.fromkeys(of_rule))
        if len(kinds) > 3:
            kinds[1:-1] = ["..."]
        yield f"  {len(of_rule)} built for {', '.join(kinds)}; found {have}"


def _with_this_torch(choice: Choice, variants: Sequence[Variant]) -> List[str]:
    """Return what lets one of the variants be loaded here: the opt-in to a pre-release, another one of a kernel."""
    against = [{rule for rule, _, _ in choice.reasons[each["label"]]} for each in variants]
    lines = []
    if {"snapshot"} in against:
        lines += ["Take this pre-release of torch for its release, at your own risk:"]
        lines += ["  export TORCH_EXT_PRERELEASE=1"]
    if "kernel" in loader.DATA and any(rules <= {"torch", "abi", "backend"} for rules in against):
        name, cached = _repository()  # it has the other variants
        call = f'get_kernel("{name}", version={loader.DATA["kernel"]["version"]})'
        lines += ["Let `kernels` choose the variant:", f"  {call if cached else f'get_local_kernel(Path({name!r}))'}"]
    return lines


def _offer(choice: Choice) -> List[str]:
    if "fallback" not in loader.DATA or not choice.here["torch"]:
        return []
    try:
        return list(_of_build("offer"))
    except loader.LoadError as error:
        return [str(error)]


def remedy(choice: Choice, variants: Sequence[Variant]) -> List[str]:
    """Return the command that installs the nearest torch for this Python and machine; else what has to change."""
    if not variants:
        return [] if choice.variants or choice.here["torch"] else ["Install torch:", "  pip install torch"]
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
    needed = f"torch>={best['torch']}" if best["stable_abi"] else f"torch=={best['torch']}.*"
    if not best["on_default_index"]:
        abi = loader._ABI_NAMES[best["cxx11_abi"]]
        return [f"Use a build of {needed} with {abi}, which torch's default index lacks,"]

    against = rules[best["label"]]
    same_release = loader._numbers(best["torch"]) == loader._Release(here["torch"]).minor
    again = " --force-reinstall" if same_release else ""  # pip would keep the installed build
    return ["Install a torch that it was built for:", f'  pip install{again} "{needed}"{_index(best, here, against)}']


def _has_wheels(variant: Variant, here: Facts) -> bool:
    first, last = variant["cp"]
    return bool(first <= loader._numbers(here["python"])[0] <= last)


def _nearness(variant: Variant, here: Facts, against: Set[str]) -> Tuple[Any, ...]:
    mine = loader._Release(here["torch"] or "99.99").minor
    built = loader._numbers(variant["torch"])
    distance = [-abs(one - other) for one, other in zip(mine, built)]
    return variant["on_default_index"], "backend" not in against, distance, built, loader._rank(variant)


def _index(variant: Variant, here: Facts, against: Set[str]) -> str:
    import re

    installed = re.search(r"\+(cpu|cu[0-9]+|rocm[0-9.]+|xpu)", here["torch"])
    build = installed[1] if installed and "abi" not in against else ""
    if variant["cuda"] and (build or "backend" in against):
        build = f"cu{variant['cuda'].replace('.', '')}"
    return f" --index-url https://download.pytorch.org/whl/{build}" if build else ""


def _other_wheels() -> List[str]:
    """Return where the variants are that a part, or a wheel that was cut from a larger one, lacks."""
    lines = []
    if loader.DATA.get("partial"):
        lines += [f"or the whole wheel, as this is a part of it without {_few(loader.DATA['partial'])}:"]
        lines += ["  hatch-torch-ext merge PART... -o DIR"]
    if loader.DATA.get("cut"):
        lines += ["or take another wheel of this release, as this one was cut: the other variants are in"]
        lines += [f"  {_few(loader.DATA['cut'])}"]
    return lines


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def update(choice: Choice) -> str:
    """Return the command that installs a newer release, or builds again what was built here."""
    if _is_of_here():
        return again()
    if "kernel" in loader.DATA:
        name, cached = _repository()
        return f"kernels versions {name if cached else 'OWNER/' + loader.DATA['kernel']['name']}"
    installed = loader._Release(choice.here["torch"])
    is_torchs_own = not choice.here["torch"] or (installed.final and installed.of_torch)
    keep_torch = "" if is_torchs_own else "--no-deps "  # pip would replace a vendor's build
    return f"pip install -U {keep_torch}{loader.DATA['distribution']}"


def again() -> str:
    """Return the command that reinstalls from the same source, quoted for a shell."""
    name = loader.DATA["distribution"]
    if loader._frozen():
        return loader._frozen()
    if "kernel" in loader.DATA:
        _, cached = _repository()
        if cached:  # what is there is not fetched again
            return f"rm -r {shlex.quote(cached)}, then load the kernel again, which fetches it"
        return "write the kernel's folder again, by `hatch-torch-ext kernels WHEEL -o FOLDER`"
    if "editable" in loader.DATA:
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            by = distribution(name).read_text("INSTALLER") or ""
        except PackageNotFoundError:
            by = ""
        # uv considers a project unchanged while its pyproject.toml is unchanged.
        command = "uv pip install --reinstall --no-deps" if by.strip() == "uv" else "pip install"
        return f"{command} -e {shlex.quote(loader.DATA['editable'])}"
    if "here" in loader.DATA:  # pip and uv keep the wheel that they built for another torch
        return f"pip install --force-reinstall --no-deps --no-cache-dir --no-binary {name} {name}"
    return f"pip install --force-reinstall --no-deps {name}"


def _is_of_here() -> bool:
    return "editable" in loader.DATA or "here" in loader.DATA


def _repository() -> Tuple[str, str]:
    """Return the repository of this kernel, ``owner/name``, and its folder in a cache of the Hub; else a folder, ""."""
    cached, found, _ = loader.ROOT.partition(f"{os.sep}snapshots{os.sep}")
    _, *name = os.path.basename(cached).split("--")
    if found and len(name) == 2:
        return "/".join(name), cached
    return os.path.dirname(os.path.dirname(os.path.dirname(loader.ROOT))), ""


def _command(options: str = "") -> str:
    """Return the command that runs the loader; a kernel of the Hub is on no path of Python's."""
    if "kernel" in loader.DATA:
        return f"python {shlex.quote(os.path.join(os.path.dirname(loader.ROOT), '_variants.py'))}{options}"
    return f"python -m {loader.PACKAGE}._variants{options}"


def _way_back(variants: Sequence[Variant]) -> List[str]:
    gone, back = pruned()
    labels = [each["label"] for each in variants if each["label"] in gone]
    return [f"Pruned from this installation: {_few(labels)}. The way back:", f"  {back}"] if labels else []


def pruned() -> Tuple[Sequence[str], str]:
    """Return the labels of the variants that `hatch-torch-ext prune` removed, and the command that brings them back."""
    manifest = _manifest()
    try:
        labels = [str(label) for label in manifest.get("pruned", [])]
        return labels, loader._plain(str(manifest.get("reinstall") or again()), 1000)
    except (TypeError, AttributeError):
        return [], again()


def _manifest() -> Any:
    """Return the manifest of the package; {} where it is missing or is no JSON."""
    try:
        with open(os.path.join(loader.ROOT, "manifest.json"), encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return {}


# 2. Something fits ----------------------------------------------------------------------------------------------------


def cautions(choice: Choice) -> Iterator[str]:
    """Yield what works with the chosen variant, but perhaps not as the user expects."""
    here, variant = choice.here, choice.variant
    if variant.get("built"):
        return
    if choice.reasons[choice.label]:
        against = choice.against(choice.label)
        yield f"{loader.PACKAGE}: {choice.label} was forced, although it was {against}: it may crash"
        return
    installed = loader._Release(here["torch"])
    if installed.final and not installed.of_torch and not variant["stable_abi"]:
        yield (
            f"{loader.PACKAGE}: torch {here['torch']} is not an official build of the release {variant['torch']}; "
            f"{choice.label} was compiled for torch's and is loaded"
        )
    for_gpus = [each for each in choice.variants if each["cuda"] and choice.reasons[each["label"]]]
    if for_gpus and not variant["cuda"] and here["backend"] != "CPU":
        yield refusal(choice, for_gpus, f"operators for the CPU only are loaded ({choice.label}).")


def trace(choice: Choice) -> None:
    """Write every verdict to stderr."""
    for label, verdict in verdicts(choice).items():
        tell(f"{label}: {verdict}")


def tell(line: str) -> None:
    """Write a line to stderr, if it is open."""
    try:
        print(f"{loader.PACKAGE}: {line}", file=sys.stderr, flush=True)  # does nothing where stderr is None
    except (OSError, ValueError):  # it is closed
        return


def verdicts(choice: Choice) -> Dict[str, str]:
    """Return for every label why it was chosen or rejected."""
    gone, _back = pruned()
    return {label: _verdict(choice, label, gone) for label in choice.reasons}


def _verdict(choice: Choice, label: str, gone: Sequence[str]) -> str:
    if choice.idle:
        return f"not loaded: {choice.idle}"
    is_built = label == choice.label and choice.variant.get("built")
    if label in gone and not is_built:
        return "pruned from this installation" + (", though it would be chosen" if label == choice.label else "")
    if label == choice.label:
        chosen = "chosen, built here" if is_built else "chosen"
        return f"forced, though {choice.against(label)}" if choice.reasons[label] else chosen
    if choice.reasons[label]:
        return f"rejected: {choice.against(label)}"
    return f"fits, but {choice.label} is better"


# 3. Registered already ------------------------------------------------------------------------------------------------


def registered_twice(_: str, kind: str, name: str, variant: Variant, shared: Any, by: str) -> str:
    """Return the message about a namespace, operator or class that is registered already, with its owner.

    ``by`` is the distribution whose it is, if that is known.
    """
    what = {"namespaces": "the operators' namespace `%s` (TORCH_LIBRARY)", "classes": "the class `%s` (torch::class_)"}
    named = what.get(kind, "the operator `%s`") % name
    kind = "operators" if kind == "fragments" else kind
    if kind == "classes":
        owner = by = shared.classes[name]
        own = []
    else:
        owner = by or next((key[0] for key, each in shared.packages.items() if name in each.get(kind, ())), "")
        own = [file for file in variant["files"] if name in file[kind]]
    did, remedy = "two libraries of it register", "Tell its authors"
    if by != loader.DATA["distribution"] and len(own) < 2:  # an owner of that name may be another kernel of it
        source = "" if owner or kind == "classes" else f" (its source: {_registered_at(kind, name)})"
        who = f"the distribution {owner}" if owner else f"something else{source}"
        did, remedy = f"{who} has registered", "Use the two in separate processes"
        if any(key[0] == owner and not each.get("kernel") for key, each in shared.packages.items()):
            remedy += f", or keep one of them: pip uninstall {owner}"
    twice = f"{did} {named} in this process, and torch ends a process that does it twice"
    return f"{loader.PACKAGE}: {variant['label']} cannot be loaded: {twice}. {remedy}"


def _registered_at(kind: str, name: str) -> str:
    from torch import _C

    text = ""
    try:
        if kind == "operators":
            text = _C._dispatch_dump(name)
        else:
            _C._dispatch_library("DEF", name, "")
    except RuntimeError as error:
        text = str(error).partition("Previous registration")[2].partition(";")[0]
    return loader._plain(text.partition("registered at ")[2].partition("\n")[0] or "not known", 200)


def taken(file: File, shared: Any) -> List[Tuple[str, str]]:
    """Return the operators and classes of a file that are registered already and in no list of it."""
    with open(loader._path(file), "rb") as stream:
        data = stream.read()
    found = [("fragments", name) for name in _operators_taken(file, data)] if file.get("fragments") else []
    return found or ([("classes", name) for name in _classes_taken(data, shared)] if file.get("classes") else [])


def _operators_taken(file: File, data: bytes) -> Sequence[str]:
    """Return operators that another library has defined, of which this one defines some only by function.

    The file holds its name as a text, and so does one that only adds a kernel to it: a child process tells.
    """
    from torch import _C

    spaces = tuple(f"{space}::" for space in file["fragments"])
    names = [name for name in sorted(_C._dispatch_get_all_op_names()) if name.startswith(spaces)]
    names = [name for name in names if _has_texts(data, name.partition("::")[2]) and loader._is_defined(name)]
    return names if names and _ends_a_process(loader._path(file)) else ()


def _has_texts(data: bytes, *texts: str) -> bool:
    return all(b"\0%s\0" % text.encode() in data for text in texts)


def _ends_a_process(path: str) -> bool:
    """Return whether opening the library ends a process; a child of this one opens it."""
    import ctypes
    import resource
    import signal
    import time
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads: the child only opens a library
        child = os.fork()
    if child == 0:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file
            ctypes.CDLL(path)
        finally:
            os._exit(0)
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WIFSIGNALED(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _classes_taken(data: bytes, shared: Any) -> Sequence[str]:
    """Return classes that another library has registered and that this one registers too.

    The file holds both parts of the name as texts: its namespace and the class. Owners are kept for all packages.
    """
    owners = vars(shared).setdefault("classes", {})
    for name in _classes():
        owners.setdefault(name, "")
    return [name for name in sorted(owners) if _has_texts(data, *name.split("::"))]


def _classes() -> Set[str]:
    from torch import _C

    try:
        schemas = _C._jit_get_custom_class_schemas()
    except AttributeError:  # a later torch may lack this function
        return set()
    types = {getattr(each.arguments[0].type, "annotation_str", "") for each in schemas if each.arguments}
    return {each.rpartition(".torch.classes.")[2].replace(".", "::") for each in types if ".torch.classes." in each}


def note_classes(shared: Any) -> None:
    """Keep that this package has registered the classes that were not there before."""
    for name in _classes():
        shared.classes.setdefault(name, loader.DATA["distribution"])


def defined_by(files: Sequence[File], shared: Any) -> List[str]:
    """Return the operators in the namespaces that these files share, without those of other packages."""
    from torch import _C

    spaces = tuple(f"{space}::" for file in files for space in file.get("fragments", ()))
    known = {name for package in shared.packages.values() for name in package["operators"]}
    return [name for name in _C._dispatch_get_all_op_names() if name.startswith(spaces) and name not in known]


# 4. The dynamic linker ------------------------------------------------------------------------------------------------


def cannot_open(reason: str, file: File) -> str:
    """Return the dynamic linker's message, with a remedy."""
    try:
        check_whole(file)
    except loader.LoadError as damage:
        return repair(str(damage), file)
    _, folder = _missed(reason)
    if not folder:
        return reason + _advice(reason)
    remedy = f"Install the two into one environment, or start the process with LD_LIBRARY_PATH={shlex.quote(folder)}"
    if "kernel" in loader.DATA:
        remedy = f"Start the process with LD_LIBRARY_PATH={shlex.quote(folder)}"
    return f"{reason}. It is in {loader._plain(folder, 400)}, on another entry of sys.path than this package. {remedy}"


def _advice(words: str) -> str:
    if "failed to map segment" in words:
        where = "Install into another folder: pip install --target FOLDER, and PYTHONPATH=FOLDER"
        if "kernel" in loader.DATA:
            where = "Let `kernels` keep it in another folder: export KERNELS_CACHE=FOLDER"
        return (
            f". Its file system may be mounted without `exec` (findmnt -T {loader._plain(loader.ROOT, 400)}), "
            f"or memory be limited (ulimit -v). {where}"
        )
    if "static TLS" in words:
        return (
            f". Libraries that were loaded before took the room for such variables. Import {loader.PACKAGE} first, or "
            "start Python with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536"
        )
    if "GLIBCXX_" in words or "CXXABI_" in words:
        return (
            ". The C++ library here is older than the compiler that it was built with. In a conda environment: "
            "conda install -c conda-forge 'libstdcxx-ng>=14'"
        )
    if "undefined symbol" in words:
        return _other_torch()
    return ""


def _other_torch() -> str:
    import torch

    for name in ("libc10.so", "libtorch_cpu.so"):
        own = os.path.join(os.path.dirname(str(torch.__file__)), "lib", name)
        if os.path.exists(own) and not loader._is_open(own):
            return (
                f". The {name} of another torch is loaded in place of {loader._plain(own, 400)}. "
                "Start it by `env -u LD_LIBRARY_PATH -u LD_PRELOAD python`"
            )
    return ""


_brought: Set[str] = set()


def bring(words: str) -> bool:
    """Open the library of another wheel that the linker misses, by its message ``words``; return whether it opened."""
    import ctypes

    name, folder = _missed(words)
    if not folder or name in _brought:
        return False
    _brought.add(name)
    try:
        ctypes.CDLL(os.path.join(folder, name))
    except OSError as error:
        if not bring(str(error)):
            return False
        _brought.discard(name)
        return bring(words)
    return True


def _missed(words: str) -> Tuple[str, str]:
    """Return the library that the dynamic linker misses, and its folder, if it is on another entry of sys.path."""
    name, _, rest = words.partition(": cannot open shared object file")
    name = name.rpartition(" ")[2]
    return name, _folder_of(name) if rest and os.sep not in name else ""


def _folder_of(name: str) -> str:
    import glob

    for entry in filter(os.path.isdir, sys.path):
        for pattern in ("*", "*/*", "*/*/*"):
            found = glob.glob(os.path.join(glob.escape(entry), pattern, glob.escape(name)))
            if found:
                return os.path.dirname(min(found))
    return ""


def _check_program(file: File) -> None:
    """Raise LoadError for a program that cannot be run, or of which the dynamic linker misses a library."""
    import subprocess

    path = loader._path(file)
    environ = dict(os.environ, LD_TRACE_LOADED_OBJECTS="1")  # the linker lists what it finds, and runs nothing
    try:
        done = subprocess.run([path], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise loader.LoadError(f"{loader.PACKAGE}: the program {path} cannot be run: {error.strerror}") from error
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    missing = [line.split()[0] for line in lines if line.endswith("not found") and "=>" in line]
    if not missing:
        return
    folders = list(dict.fromkeys(filter(None, map(_folder_of, missing))))
    remedy = f"Start it with LD_LIBRARY_PATH={shlex.quote(':'.join(folders))}" if folders else "Install what has them"
    raise loader.LoadError(
        f"{loader.PACKAGE}: the program {loader._plain(path, 1000)} does not find {', '.join(missing)}: they are on "
        f"another entry of sys.path than this package, or nowhere. {remedy}"
    )


# 5. Files that are not what was built ---------------------------------------------------------------------------------


def repair(reason: str, file: File) -> str:
    """Return the message about a file that cannot be opened, with a remedy."""
    gone, back = pruned()
    owners = [each["label"] for each in loader.DATA["variants"] if file in each["files"]]
    if set(owners) & set(gone) and not os.path.exists(loader._path(file)):
        label = next(label for label in owners if label in gone)
        return f"{loader.PACKAGE}: {label} fits, but was pruned from this installation. The way back: {back}"
    if "Permission denied" in reason:
        return f"{reason}. Run as its owner: chmod -R a+rX {shlex.quote(os.path.dirname(loader.ROOT))}"
    path = loader._path(file)
    if os.path.isfile(path) and mapped(path) is not None:  # whole, and patchelf may leave the size as it is
        return (
            f"{loader.PACKAGE}: {loader._plain(path, 1000)} was changed after it was built (sha256 {file['sha256']}). "
            f"If that was meant (patchelf, objcopy): {_command(' --renew')}. If not, repair it: {again()}"
        )
    if "inside an archive" in reason:
        command = "install the package unpacked"
    elif os.path.isabs(file["path"]):
        command = _command(" --clear-cache")
    else:
        command = again()
    return f"{reason}. Repair it: {command}"


def check_whole(file: File) -> None:
    """Compare every byte of a file, where loading compares both ends."""
    loader._inspect(file)
    if _sha256(loader._path(file)) != file["sha256"] and not is_as_renewed(file):
        raise loader._unsound(file, "is damaged")


def is_as_renewed(file: File) -> bool:
    """Return whether a file that differs from the built one is right: only symbols are gone, or `--renew` took it."""
    path = loader._path(file)
    if file.get("mapped") is not None and mapped(path) == file["mapped"]:
        return True
    checks = _manifest().get("renewed", {}).get(file["path"], {})
    return bool(checks.get("built") == file["sha256"] and checks.get("sha256") == _sha256(path))


def _sha256(path: str) -> str:
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def mapped(path: str) -> Any:
    """Return the CRC-32 of what a process maps of an ELF file: place, size and both ends of each allocated section.

    ``strip`` and what adds debug links leave it as it is. None for a file that is not ELF or not whole, or has
    no sections where its segments map them.
    """
    import struct
    import zlib

    with open(path, "rb") as stream:
        total = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
            return None
        segments, sections = _tables(stream, head, total)
        checksum = 0
        for _, kind, flags, address, offset, length in sorted(sections, key=lambda each: (each[3], each[1], each[5])):
            if not flags & 2 or kind == 7:  # not allocated; a note
                continue
            checksum = zlib.crc32(struct.pack("<IQQ", kind, address, length), checksum)
            if kind == 8 or not length:  # without bytes in the file
                continue
            loads = [each for each in segments if each[0] == 1 and each[3] <= address < each[3] + each[5]]
            if offset + length > total or not any(address - each[3] == offset - each[2] for each in loads):
                return None
            stream.seek(offset)
            checksum = zlib.crc32(stream.read(min(loader._END, length)), checksum)
            if length > loader._END:
                stream.seek(max(offset + loader._END, offset + length - loader._END))
                checksum = zlib.crc32(stream.read(offset + length - stream.tell()), checksum)
    return checksum if sections else None


def _tables(stream: Any, head: bytes, total: int) -> Tuple[List[Any], List[Any]]:
    import struct

    found: List[List[Any]] = []
    sizes = struct.unpack_from("<HHHH", head, 54)
    for at, size, count in zip(struct.unpack_from("<QQ", head, 32), sizes[::2], sizes[1::2]):
        if at + size * count > total or (count and size < 40):
            return [], []
        stream.seek(at)
        table = stream.read(size * count)
        found.append([struct.unpack_from("<IIQQQQ", table, size * number) for number in range(count)])
    return found[0], found[1]


def renew() -> str:
    """Take every file as it is now for what was built, and return what changed; a file that is not whole is refused."""
    checks: Dict[str, Any] = {}
    lines = []
    labels, _back = pruned()
    gone = {file["path"] for each in loader.DATA["variants"] if each["label"] in labels for file in each["files"]}
    for file in (file for variant in loader.DATA["variants"] for file in variant["files"]):
        path = loader._path(file)
        if file["path"] in checks or (file["path"] in gone and not os.path.exists(path)):
            continue
        if not os.path.isfile(path):
            loader._inspect(file)  # which says why
        sha256 = _sha256(path)
        if sha256 == file["sha256"]:
            continue
        checksum = mapped(path)
        if file.get("mapped") is not None and checksum is None:
            raise loader.LoadError(f"{loader.PACKAGE}: {path} is cut short or damaged. Repair it: {again()}")
        checks[file["path"]] = {"built": file["sha256"], "sha256": sha256}
        what = "its symbols only" if checksum is not None and checksum == file.get("mapped") else "its content"
        lines.append(f"  {file['path']}: {what} ({file['size']} bytes, now {os.path.getsize(path)})")
    manifest = _manifest()
    if manifest.get("renewed", {}) != checks:
        place = os.path.join(loader.ROOT, "manifest.json")
        with open(f"{place}.new", "w", encoding="utf-8") as stream:
            json.dump({**manifest, "renewed": checks}, stream, indent=1, sort_keys=True)
        os.replace(f"{place}.new", place)
    head = "the checks of these files are renewed:" if checks else "every file is as it was built"
    return "\n".join([f"{loader.PACKAGE}: {head}", *lines])


# 6. The command line --------------------------------------------------------------------------------------------------


def is_asked() -> bool:
    """Return whether ``python -m <package>._variants`` is importing the package on its way to the loader."""
    frame: Any = sys._getframe()
    while frame is not None:
        # a variable of the standard library's runpy
        if frame.f_locals.get("mod_name") == f"{loader.PACKAGE}._variants":
            return True
        frame = frame.f_back
    return False


def main(arguments: Sequence[str]) -> int:
    """Do what ``main`` of _variants.py promises."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # file names may have any bytes
    actions: Dict[str, Callable[..., str]] = {
        "": explain,
        "--json": as_json,
        "--library-path": library_path,
        "--check": check,
        "--path": loader.path,
        "--renew": renew,
        "--build": lambda: str(_of_build("build_now")),
        "--cache": lambda: str(_of_build("show_cache")),
        "--clear-cache": lambda: str(_of_build("clear_cache")),
    }
    option, names = (arguments[0], arguments[1:]) if arguments else ("", [])
    if option not in actions or len(names) != (1 if option == "--path" else 0):
        options = " | ".join(f"{each} NAME" if each == "--path" else each for each in actions if each)
        print(f"usage: {_command(f' [{options}]')}", file=sys.stderr)
        return 2
    try:
        print(actions[option](*names))
        if option in ("--cache", "--clear-cache", "--renew"):
            return 0
        choice = loader.choose(must=False)
    except Exception as error:  # noqa: BLE001 - whatever a broken torch raises, and what the system refuses
        print(_of_error(error), file=sys.stderr)
        return 1
    return 0 if choice.idle or (choice.variant and not any(faults(choice))) else 1


def _of_error(error: Exception) -> str:
    if isinstance(error, loader.LoadError):
        return loader._explained(error)
    words = f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "torch":
            return f"{loader.PACKAGE}: torch cannot be imported: {words}"
        trace = trace.tb_next
    if isinstance(error, ImportError):  # of the loader, explained
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        words = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, SyntaxError):
        words += f" ({error.filename})"
    return f"{loader.PACKAGE}: {words}"


def faults(choice: Choice) -> Iterator[LoadError]:
    """Yield the reason why a file of the chosen variant is refused, or is a program that misses a library."""
    for file in choice.variant["files"] if choice.variant and not choice.idle else ():
        try:
            loader._inspect(file)
            if file["kind"] == "program":
                _check_program(file)
        except loader.LoadError as error:  # noqa: PERF203 -- a file that is refused hides no other
            yield error


def _of_build(function: str) -> Any:
    """Call a function of build.py."""
    if "fallback" not in loader.DATA:
        here = f"See what it is for: {_command()}"
        raise loader.LoadError(f"{loader.PACKAGE} holds no sources, so nothing is built at first use. {here}")
    try:
        build = loader._part("build")
    except OSError as error:  # a half-deleted installation
        raise loader.LoadError(f"{loader.PACKAGE}: {error}. Reinstall it: {again()}") from error
    return getattr(build, function)()


def explain() -> str:
    """Return the facts, the verdict on each variant, and what to do if none fits or a file is damaged."""
    choice = loader.choose(must=False)
    gone, _back = pruned()
    found = sorted(verdicts(choice).items(), key=lambda item: item[0] in gone)  # what is pruned comes last
    lines = [str(choice), *(f"  {label}: {verdict}" for label, verdict in found), *_way_back(choice.variants)]
    lines += map(loader._explained, faults(choice))
    if choice.variant is None and not choice.idle:
        present = _present(choice.variants)
        lines += [*_with_this_torch(choice, present), *_offer(choice), *remedy(choice, present)]
    return "\n".join(lines)


def as_json() -> str:
    """Return the facts, the data, the choice and the verdicts as JSON."""
    choice = loader.choose(must=False)
    variant, wrong = choice.variant, list(faults(choice))
    gone, back = pruned()
    found: Dict[str, Any] = {
        "root": loader.ROOT,
        "facts": choice.here,
        "chosen": choice.label,
        "verdicts": verdicts(choice),
        "paths": {file["name"]: loader._path(file) for file in (variant or {"files": ()})["files"] if file["name"]},
        "built": bool(variant and variant.get("built")),
        "pruned": gone,
        **({"reinstall": back} if gone else {}),
        "problems": list(map(loader._explained, wrong)),
        "damaged": any(each.topic for each in wrong),
    }
    if variant is None and not choice.idle:
        found["remedy"] = remedy(choice, _present(choice.variants))
        found["build"] = [line.strip() for line in _offer(choice) if line.startswith("  ")]
    return json.dumps({**loader.DATA, **found}, indent=2)


def library_path() -> str:
    """Return the paths of the libraries that register operators; without one, list the libraries and the command."""
    files = loader._variant_for_programs()["files"]
    libraries = [file for file in files if file["kind"] == "library"]
    registering = [file for file in libraries if file["registers"]]
    for file in registering:
        loader._inspect(file)
    if registering:
        return "\n".join(map(loader._path, registering))
    if not libraries:
        raise loader.LoadError(f"{loader.PACKAGE} has only Python modules, no library for programs without Python")
    names = [file["name"] or os.path.basename(file["path"]) for file in libraries]
    raise loader.LoadError(
        f"{loader.PACKAGE}: no library that load() opens registers operators, so say which one you mean: "
        f"{', '.join(names)}. Type: {_command(f' --path {names[0]}')}"
    )


_CHECK = """
import importlib, json, sys
import torch
name, folder, modules, *sys.path[:] = sys.argv[1:]
if folder:
    package = type(sys)(name.rpartition(".")[0])
    package.__path__ = [folder]
    sys.modules[package.__name__] = package
names = torch._C._dispatch_get_all_op_names
before = set(names())
importlib.import_module(name).load()
failed = []
for module in modules.split():
    print("\\nimporting", module, flush=True)
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        failed.append(f"{module} cannot be imported: {type(error).__name__}: {error}")
print("\\n" + json.dumps([failed, sorted(set(names()) - before)]))
"""


def check() -> str:
    """Compare every file of the chosen variant with its hash, load and import it in another process."""
    import subprocess

    choice = loader._choose()
    if choice.idle:
        raise loader.LoadError(f"{loader.PACKAGE}: nothing is checked, as {choice.idle}")
    for file in choice.variant["files"]:
        check_whole(file)
        if file["kind"] == "program":
            _check_program(file)
    if loader._frozen() or not sys.executable:
        return f"{choice.label} is whole; a frozen or embedded Python cannot load it in another process"
    up = [os.pardir] * (1 + len(loader.PACKAGE.split(".")))
    own = [] if loader.__package__ else [os.path.normpath(os.path.join(loader.ROOT, *up))]  # run by the file's path
    folder = os.path.dirname(loader.ROOT) if "kernel" in loader.DATA else ""  # of a package on no path of Python's
    opened = [file for file in choice.variant["files"] if file["module"] and not file.get("unopened")]
    modules = " ".join(f"{loader.PACKAGE}.{file['module']}" for file in opened)
    command = [sys.executable, "-c", _CHECK, f"{loader.PACKAGE}._variants", folder, modules, *own, *sys.path]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    last = (done.stdout.decode(errors="replace").splitlines() or [""])[-1]
    if done.returncode:
        doing = f"imported {last.split()[1]}" if last.startswith("importing ") else "loaded it"
        raise loader.LoadError(f"{choice.label} failed: the process that {doing} ended with status {done.returncode}")
    failed, registered = json.loads(last)
    if failed:
        raise loader.LoadError("\n".join(f"{choice.label} failed: {each}" for each in failed))
    operators = ", ".join(registered)
    if not operators and not any(file["registers"] or file["module"] for file in choice.variant["files"]):
        return f"{choice.label} is whole, but load() opens nothing of it: no file registers an operator or a class"
    return f"{choice.label} works; its operators: {operators or 'none'}"
