"""Runs a ``setup.py`` without building: ``record_setup.py RESULT SETUP BACKEND [ARGUMENT…]``, in a copy of the project.

The arguments of ``setup()`` are written to RESULT as JSON. Programs that ``setup.py`` would run, and downloads, are
noted with their line and do not happen. ``BACKEND`` is ``cpu`` or ``cuda``: the simulated machine.
"""

import ast
import configparser
import contextlib
import glob
import inspect
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import traceback
import urllib.request
import warnings

RESULT, SETUP, BACKEND, *ARGUMENTS = sys.argv[1:]
CUDA = os.environ.get("TORCH_EXT_RECORDING_CUDA") or "12.8"
NVCC = (
    "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {0}, V{0}.93\nBuild cuda_{0}.r{0}/x\n"
).format(CUDA)
notes = []


class Done(BaseException):
    """``setup()`` was called, and its arguments are recorded."""


def line():
    """Return the line of ``setup.py`` that is running (of the innermost frame); 0 outside of it."""
    for frame in inspect.stack():
        if os.path.abspath(frame.filename) == os.path.abspath(SETUP):
            return frame.lineno
    return 0


def note(text):
    """Add a note about something that cannot be carried over."""
    entry = {"line": line(), "text": text}
    if entry not in notes:
        notes.append(entry)


SEPARATED = {
    "include_dirs": os.pathsep, "library_dirs": os.pathsep, "rpath": os.pathsep, "define": ",", "undef": ",",
    "libraries": r"[,\s]", "link_objects": r"[,\s]",
}  # fmt: skip
"""Options of the command ``build_ext`` that every extension gets besides its own -> what separates their parts."""


def for_all(keywords):
    """Return these options, from setup.cfg, pyproject.toml and the arguments of ``setup()``."""
    parser = configparser.RawConfigParser()
    parser.read("setup.cfg", encoding="utf-8")
    given = dict(parser.items("build_ext")) if parser.has_section("build_ext") else {}
    if os.path.isfile("pyproject.toml"):
        from setuptools.config.pyprojecttoml import load_file

        distutils = load_file("pyproject.toml").get("tool", {}).get("distutils", {})
        given.update(distutils.get("build_ext", distutils.get("build-ext", {})))
    given.update((keywords.get("options") or {}).get("build_ext", {}))
    found = {"include_dirs": keywords.get("include_dirs") or []}
    found.update({name.replace("-", "_"): value for name, value in given.items() if value})
    for name, separator in SEPARATED.items():
        value = found.get(name) or []
        parts = re.split(separator, value) if isinstance(value, str) else paths(value)
        found[name] = [each.strip() for each in parts if each.strip()]
    return found


LISTED = ("include_dirs", "define_macros", "undef_macros", "library_dirs", "libraries", "extra_objects")
"""What an extension has lists of; a text is taken for the one thing in it."""


def listed(value):
    """Return a list of what a list, or a text in its place, has."""
    return [value] if isinstance(value, str) else list(value or [])


def words(value):
    """Return flags, which may be one text."""
    return shlex.split(value) if isinstance(value, str) else [str(each) for each in value or []]


def paths(*lists):
    """Return the paths of several lists as texts."""
    return [os.fspath(each) for one in lists for each in one or []]


def recorded(extension, common, package):
    """Return the declaration of one extension of ``ext_package``; ``common`` is what every one gets."""
    compiled = getattr(extension, "torch_ext_compile_args", None)
    if compiled is None:
        compiled = extension.extra_compile_args or []
    flags = compiled if isinstance(compiled, dict) else {"cxx": compiled, "nvcc": compiled}
    for name in LISTED:
        setattr(extension, name, listed(getattr(extension, name, None)))
    macros = [[pair[0], None if len(pair) < 2 or pair[1] is None else str(pair[1])] for pair in extension.define_macros]
    return {
        "name": "{}.{}".format(package, extension.name) if package else extension.name,
        "kind": getattr(extension, "torch_ext_kind", "other"),
        "sources": paths(extension.sources),
        "include_dirs": paths(extension.include_dirs, common["include_dirs"]),
        "define_macros": [*macros, *([name, "1"] for name in common["define"])],
        "undef_macros": [*extension.undef_macros, *common["undef"]],
        "library_dirs": paths(extension.library_dirs, common["library_dirs"]),
        "libraries": [*extension.libraries, *common["libraries"]],
        "runtime_library_dirs": paths(extension.runtime_library_dirs, common["rpath"]),
        "extra_objects": paths(extension.extra_objects, common["link_objects"]),
        "cxx": words(flags.get("cxx")),
        "nvcc": words(flags.get("nvcc")),
        "link": words(extension.extra_link_args),
        "py_limited_api": bool(getattr(extension, "py_limited_api", False)),
        "dlink": bool(getattr(extension, "torch_ext_dlink", False)),
    }


PLAIN = (
    "name", "version", "description", "author", "author_email", "maintainer", "maintainer_email", "url", "download_url",
    "project_urls", "license", "python_requires", "install_requires", "extras_require", "classifiers", "keywords",
    "packages", "package_dir", "package_data", "include_package_data", "entry_points", "scripts", "py_modules", "options",
    "use_scm_version", "data_files",
)  # fmt: skip


def plain(value):
    """Return a value in a form that JSON can hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def lines(value):
    """Return requirements or the like as a list: setuptools accepts the lines of a text, and any iterable."""
    parts = value.splitlines() if isinstance(value, str) else [str(each) for each in value or []]
    parts = [re.split(r"(?:^|\s)#", each, maxsplit=1)[0].strip() for each in parts]  # files of pip have comments
    return [each for each in parts if each]


def entry_points(value):
    """Return entry points by group; they may be given as the text of an .ini file."""
    if isinstance(value, str):
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.optionxform = str
        parser.read_string(textwrap.dedent(value))
        return {group: ["{} = {}".format(*point) for point in parser.items(group)] for group in parser.sections()}
    found = {str(group): lines(points) for group, points in (value or {}).items()}
    for group, points in found.items():
        for each in points:
            if "=" not in each:
                raise ValueError("entry point `{}` of `{}` has no `=`".format(each, group))
    return found


TABLES = ("cmdclass", "extras_require", "options", "package_data", "package_dir", "project_urls")
"""Arguments of ``setup()`` that are tables."""


def declarations(extensions):
    """Return the extensions as a list; a pair of a name and a table is an old form of one."""
    from setuptools import Extension

    if hasattr(extensions, "sources"):
        return [extensions]  # setuptools refuses it, and there is one thing that it can mean
    return [
        Extension(each[0], **each[1]) if isinstance(each, tuple) and len(each) == 2 else each for each in extensions
    ]


def check(keywords):
    """Raise ``TypeError`` for what setuptools does not accept either."""
    for name in TABLES:
        if keywords.get(name) and not isinstance(keywords[name], dict):
            raise TypeError("the argument `{}` of setup() must be a dict: {!r}".format(name, keywords[name]))
    for name in ("name", "version"):
        if isinstance(keywords.get(name), (list, tuple, dict, set, bytes)):
            raise TypeError("the argument `{}` of setup() must be a text: {!r}".format(name, keywords[name]))
    for each in keywords.get("ext_modules") or []:
        if not hasattr(each, "sources"):
            raise TypeError("the argument `ext_modules` of setup() must be a list of extensions: {!r}".format(each))


def tidied(metadata):
    """Return the metadata with each value in one of the forms that setuptools accepts."""
    found = dict(metadata)
    for name in ("install_requires", "classifiers", "packages", "py_modules", "scripts"):
        if name in found:
            found[name] = lines(found[name])
    if "entry_points" in found:
        found["entry_points"] = entry_points(found["entry_points"])
    extras = {}
    for key, requirements in (found.get("extras_require") or {}).items():
        name, _, marker = str(key).partition(":")  # "name:marker"; without a name they are required
        listed = [marked(each, marker) for each in lines(requirements)]
        if name:
            extras.setdefault(name, []).extend(listed)
        else:
            found["install_requires"] = [*found.get("install_requires", []), *listed]
    if extras:
        found["extras_require"] = extras
    else:
        found.pop("extras_require", None)
    return found


def marked(requirement, marker):
    """Return a requirement under a marker."""
    if not marker:
        return requirement
    declared, _, own = (each.strip() for each in requirement.partition(";"))
    return "{}; {}".format(declared, "({}) and ({})".format(own, marker) if own else marker)


def setup(*args, **keywords):
    """Take the place of ``setuptools.setup``."""
    if keywords.get("ext_modules"):
        keywords["ext_modules"] = declarations(keywords["ext_modules"])
    check(keywords)
    for name, command in (keywords.get("cmdclass") or {}).items():
        kind = command if isinstance(command, type) else type(command)
        if kind.__module__ == "__main__" or kind.__module__.startswith("setup"):
            notes.append(
                {
                    "line": classes().get(kind.__name__) or line(),
                    "text": "the command `{}` is replaced by `{}`".format(name, kind.__name__),
                }
            )
    if suffix := added_to_version():
        note("setup.cfg adds `{}` to each version (`tag_build`), which is not carried over".format(suffix))
    if versioneers():
        note("its version is versioneer's: the one of today is written; for versions out of tags, see hatch-vcs")
    metadata = {name: keywords[name] for name in PLAIN if name in keywords}
    metadata.update(configured())
    metadata = {**of_pyproject(metadata), **metadata}
    common, package = for_all(keywords), keywords.get("ext_package")
    for name, _ in keywords.get("libraries") or []:
        note("builds the static library `{}` by the argument `libraries` of setup()".format(name))
    declared = keywords.get("ext_modules") or []
    extensions = [recorded(each, common, package) for each in declared]
    of_cmake = [each.torch_ext_cmake for each in declared if hasattr(each, "torch_ext_cmake")]
    cmake = keywords.get("torch_ext_cmake") or next(iter(of_cmake), None)
    found = {"extensions": extensions, "metadata": plain(tidied(metadata)), "packed": packed(keywords)}
    wheel = wheel_command(keywords, declared)
    found["tag"] = tag(wheel) if wheel and declared else ""
    if wheel and wheel.plat_name_supplied:
        why = "the tag says what the files need, and the hook's option `manylinux` asks for a policy"
        note("the platform `{}` (`plat_name` of bdist_wheel) is not carried over: {}".format(wheel.plat_name, why))
    if wheel and wheel.build_number:
        note("the build number `{}` (`build_number` of bdist_wheel) is not carried over".format(wheel.build_number))
    if not cmake and not all(each.sources for each in declared):
        run_command(keywords.get("cmdclass") or {}, declared)
    finish({"cmake": plain(cmake), "commanded": next(iter(CONFIGURED), None), **found})
    raise Done


@contextlib.contextmanager
def aside():
    """Run what setuptools or the project computes; failures, warnings and notes do not count."""
    before = list(notes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Exception, SystemExit):
        pass
    finally:
        notes[:] = before


def distribution(extensions, **more):
    """Return a distribution of setuptools with these extensions."""
    from setuptools.dist import Distribution

    given = {"script_name": SETUP, "name": "recorded", "version": "0", "ext_modules": extensions}
    return Distribution(dict(given, **more))


def wheel_command(keywords, extensions):
    """Return the command that makes the wheel, as the author configures it; None where it cannot be made ready.

    Its options come from setup.cfg, pyproject.toml, the arguments of ``setup()`` or a command of the project.
    """
    commands = keywords.get("cmdclass") or {}
    with aside():
        made = distribution(extensions, options=keywords.get("options") or {})
        made.cmdclass = {name: commands[name] for name in ("bdist_wheel",) if name in commands}
        made.parse_config_files(ignore_option_errors=True)
        command = made.get_command_obj("bdist_wheel")
        command.ensure_finalized()
        return command
    return None


def tag(command):
    """Return Python and ABI of the tag that the author gives to the wheel, as ``cp39-abi3``; "" if he gives none."""
    found = "{}-abi3".format(command.py_limited_api) if command.py_limited_api else ""
    with aside():
        found = "-".join(command.get_tag()[:2])  # refuses what the Python of the recording could not run
    own = "cp{}{}".format(*sys.version_info)
    return "" if found == "{0}-{0}".format(own) else found


def run_command(commands, extensions):
    """Run the project's own ``build_ext``, whose programs do nothing, to learn what it gives to CMake."""
    with aside():  # it looks for what the programs did not make
        command = commands["build_ext"](distribution(extensions))
        command.ensure_finalized()
        command.run()


def added_to_version():
    """Return what `egg_info` of setup.cfg adds to the version; a source distribution says that it adds nothing."""
    parser = configparser.RawConfigParser()
    try:
        parser.read("setup.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return ""
    return parser.get("egg_info", "tag_build", fallback="").strip()


def versioneers():
    """Return whether the version is versioneer's; its file takes itself out of ``sys.modules``."""
    return "versioneer" in sys.modules or (os.path.isfile("versioneer.py") and "versioneer" in setuptools_settings())


def setuptools_settings():
    """Return the text of the files that configure setuptools."""
    text = ""
    for name in ("setup.py", "setup.cfg", "pyproject.toml"):
        if os.path.isfile(name):
            with open(name, encoding="utf-8", errors="replace") as stream:
                text += stream.read()
    return text


def tracked():
    """Return the files that git tracks, if setuptools-scm would tell setuptools of them."""
    listed = os.environ.get("TORCH_EXT_RECORDING_TRACKED", "")
    if not os.path.isfile(listed) or not re.search(r"setuptools[-_](scm|git)", setuptools_settings()):
        return []
    with open(listed, encoding="utf-8") as stream:
        return stream.read().splitlines()


PACKED = (
    "name", "packages", "package_dir", "package_data", "exclude_package_data", "include_package_data", "py_modules",
    "ext_modules",  # whose sources are data too, where include_package_data says so
)  # fmt: skip


def packed(keywords):
    """Return the Python files and data that setuptools packs: place in the wheel, in the project, and behind links."""
    from setuptools.command import egg_info
    from setuptools.dist import Distribution

    egg_info.walk_revctrl = lambda *rest: iter(tracked())
    given = {name: keywords[name] for name in PACKED if keywords.get(name) is not None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = Distribution(dict(given, script_name=SETUP, version="0"))
            made.parse_config_files(ignore_option_errors=True)
            made.set_defaults()
            made.script_args = []
            command = made.get_command_obj("build_py")
            command.ensure_finalized()
            found = [
                ["/".join([*filter(None, package.split(".")), os.path.basename(file)]), file]
                for package, _, file in command.find_all_modules()
            ]
            for package, folder, _, names in command.data_files or []:
                inner = package.replace(".", "/")
                found += [
                    ["/".join(filter(None, [inner, each.replace(os.sep, "/")])), os.path.join(folder, each)]
                    for each in names
                ]
    except (Exception, SystemExit) as error:
        note("setuptools cannot tell which files it packs ({}): compare the wheels".format(error))
        return None
    return sorted({(*each, os.path.realpath(each[1])) for each in found})  # setup.py may take its links away again


def classes():
    """Return the lines of the classes in ``setup.py``."""
    with open(SETUP, "rb") as stream:
        nodes = ast.walk(ast.parse(stream.read()))
    return {node.name: node.lineno for node in nodes if isinstance(node, ast.ClassDef)}


def configured():
    """Return the values of setup.cfg, which override the arguments of ``setup()`` in setuptools."""
    if not os.path.isfile("setup.cfg"):
        return {}
    from setuptools.config.setupcfg import read_configuration

    try:
        read = read_configuration("setup.cfg")
    except Exception as error:
        note("setup.cfg cannot be read ({}): carry over by hand what it says".format(error))
        return {}
    found = {}
    for section in ("metadata", "options"):
        found.update({name: value for name, value in read.get(section, {}).items() if name in PLAIN and value})
    return found


DYNAMIC = {
    "dependencies": "install_requires", "optional-dependencies": "extras_require", "classifiers": "classifiers",
    "description": "description",
}  # fmt: skip
"""Fields of [project] that setuptools may read from other files -> names of arguments of ``setup()``."""


def of_pyproject(metadata):
    """Return the values that setuptools takes from pyproject.toml: packages, and the dynamic fields of [project]."""
    if not os.path.isfile("pyproject.toml"):
        return {}
    from setuptools.config.pyprojecttoml import load_file, read_configuration

    try:
        dynamic = load_file("pyproject.toml").get("project", {}).get("dynamic", [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = read_configuration("pyproject.toml", ignore_option_errors=True)
    except Exception as error:
        note("pyproject.toml cannot be read by setuptools ({}): carry over by hand what it says".format(error))
        return {}
    tables, project = read.get("tool", {}).get("setuptools", {}), read.get("project", {})
    written = {key.replace("_", "-"): value for key, value in project.items()}  # setuptools writes one with `_`
    found = {name: written[key] for key, name in DYNAMIC.items() if key in dynamic and key in written}
    named = {"packages": "packages", "py-modules": "py_modules", "package-dir": "package_dir"}
    found.update({name: tables[key] for key, name in named.items() if tables.get(key)})
    if project and not {"packages", "py_modules"} & {*found, *metadata}:
        found.update(discovered())
    return found


def discovered():
    """Return the packages that setuptools discovers if a [project] table names none."""
    from setuptools.discovery import FlatLayoutPackageFinder, PEP420PackageFinder

    if os.path.isdir("src"):
        return {"packages": PEP420PackageFinder.find("src"), "package_dir": {"": "src"}}
    return {"packages": FlatLayoutPackageFinder.find(".")}


GIVEN = frozenset(os.environ)
variables = []


class Environment(type(os.environ)):
    """The environment; it keeps the names of the variables that ``setup.py`` itself reads."""

    def __getitem__(self, name):
        frame, depth = sys._getframe(1), 0
        while frame is not None and depth < 4:
            if frame.f_code.co_filename == SETUP and name not in variables:
                variables.append(name)
            frame, depth = frame.f_back, depth + 1
        return super().__getitem__(name)


ANSWERED = ("CUDA_HOME", "CUDA_PATH", "FORCE_CUDA", "HOME", "MAX_JOBS", "PATH", "TORCH_CUDA_ARCH_LIST")
"""Variables that are set for a recording, or that its torch answers."""


def finish(found):
    """Write the result."""
    found["variables"] = sorted(name for name in variables if name not in ANSWERED and name not in GIVEN)
    found["read"] = variables
    found["torch"] = str(getattr(sys.modules.get("torch"), "__version__", ""))
    unknown = getattr(sys.modules.get("torch._unknown"), "USED", [])
    if unknown:
        answer = "taken for nothing" if os.environ.get("TORCH_EXT_RECORDING_UNKNOWN") else "refused as unknown"
        what = "asks torch for {}, which a recording does not know: {}".format(", ".join(unknown), answer)
        notes.append({"line": 0, "text": what})
    found["notes"] = notes
    with open(RESULT, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


CONFIGURED = []
"""The project's folder and the arguments of each run of CMake that configures, in order."""
OTHER_USES = ("--build", "--install", "--version", "--help", "-E", "-P")
WITH_VALUE = ("-S", "-B", "-G", "-A", "-T")


def configured_by(command, folder):
    """Keep what a program in ``folder``, or a text of the shell, gives to CMake."""
    for text in re.split(r"\n|&&|;", command) if isinstance(command, str) else [command]:
        try:
            words = shlex.split(text) if isinstance(text, str) else [os.fspath(each) for each in text]
        except ValueError:
            continue
        name, rest = os.path.basename((words or [""])[0]), words[1:]
        if name == "cd" and rest:
            folder = os.path.join(folder, rest[0])
        if name not in ("cmake", "cmake3") or not {*OTHER_USES}.isdisjoint(rest):
            continue
        source, arguments = None, []
        while rest:
            word = rest.pop(0)
            if word in WITH_VALUE and rest:
                value = rest.pop(0)
                source = value if word == "-S" else source
            elif word == "-D" and rest:
                arguments.append("-D" + rest.pop(0))
            elif word.startswith("-"):
                arguments.append(word)
            else:
                source = word
        if source is not None:
            CONFIGURED.append({"source": os.path.join(folder, source), "args": arguments})


def program(command, folder=None):
    """Note a program that would run; return what nvcc prints if the machine has CUDA, else nothing."""
    configured_by(command, os.path.abspath(folder or os.curdir))
    words = command if isinstance(command, str) else " ".join(os.fspath(each) for each in command)
    first = os.path.basename((words.split() or [""])[0])
    if first == "nvcc":
        if BACKEND == "cpu":
            raise FileNotFoundError(2, "No such file or directory", "nvcc")
        return NVCC
    if first not in ("git", "which", "uname", "gcc", "g++", "c++", "ldconfig", "sw_vers") or "submodule" in words:
        note("runs `{}`".format(" ".join(words.split())[:120]))
    elif first == "git":
        raise subprocess.CalledProcessError(128, words)
    return ""


class Popen:
    """A program that does nothing and succeeds."""

    def __init__(self, args, *rest, **keywords):
        self.args = args
        self.text = program(args, keywords.get("cwd"))
        self.as_text = bool(keywords.get("text") or keywords.get("universal_newlines") or keywords.get("encoding"))
        self.returncode = 0
        self.pid = 0
        self.stdout = self.stderr = self.stdin = None

    def output(self):
        """Return what it printed."""
        return self.text if self.as_text else self.text.encode()

    def communicate(self, *rest, **keywords):
        """Return what it printed, and nothing on stderr."""
        return self.output(), self.output()[:0]

    def wait(self, *rest, **keywords):
        """Succeed."""
        return 0

    poll = wait

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        return None


def run(args, *rest, **keywords):
    """Take the place of ``subprocess.run``."""
    done = Popen(args, **keywords)
    return subprocess.CompletedProcess(args, 0, done.output(), done.output()[:0])


def check_output(args, *rest, **keywords):
    """Take the place of ``subprocess.check_output``."""
    return Popen(args, **keywords).output()


def call(args, *rest, **keywords):
    """Take the place of ``subprocess.call`` and ``check_call``."""
    return Popen(args, **keywords).returncode


def there(name):
    """Return where a program is that the build hook brings."""
    return "/usr/bin/{}".format(name) if name in ("cmake", "ninja") else None


def downloads(address, *rest, **keywords):
    """Note a download, and fail as without a network."""
    note("downloads {}".format(str(getattr(address, "full_url", address))[:120]))
    raise OSError("no network while setup.py is recorded")


def refused(*rest, **keywords):
    """Fail as without a network."""
    raise OSError("no network while setup.py is recorded")


def main():
    """Run ``setup.py``, with stand-ins for ``setup()``, programs and the network."""
    sys.argv[:] = [SETUP, "bdist_wheel", *ARGUMENTS]  # the command that makes what users get
    sys.path.insert(0, os.getcwd())
    import distutils.core

    import setuptools

    setuptools.setup = distutils.core.setup = setup
    socket.socket.connect = refused
    urllib.request.urlopen = urllib.request.urlretrieve = downloads
    subprocess.Popen, subprocess.run, subprocess.check_output = Popen, run, check_output
    subprocess.call = subprocess.check_call = call
    listed = {each: getattr(glob, each) for each in ("glob", "iglob")}
    # The order of files differs between machines.
    glob.glob = lambda *rest, **keywords: sorted(listed["glob"](*rest, **keywords))
    glob.iglob = lambda *rest, **keywords: iter(sorted(listed["iglob"](*rest, **keywords)))
    listdir = os.listdir
    os.listdir = lambda *rest: sorted(listdir(*rest))
    for name in ("glob", "rglob", "iterdir"):
        unsorted = getattr(pathlib.Path, name)
        setattr(pathlib.Path, name, lambda *rest, _all=unsorted, **keywords: iter(sorted(_all(*rest, **keywords))))
    which = shutil.which
    shutil.which = lambda name, *rest, **keywords: which(name, *rest, **keywords) or there(name)
    os.environ.__class__ = Environment
    os.system = lambda command: call(command)
    os.popen = lambda command, *rest: io.StringIO(program(command))
    try:
        with open(SETUP, "rb") as stream:
            code = compile(stream.read(), SETUP, "exec")
        exec(code, {"__name__": "__main__", "__file__": os.path.abspath(SETUP), "__builtins__": __builtins__})
    except Done:
        return
    except SystemExit as error:
        finish({"error": "calls sys.exit({!r}) before setup()".format(error.code), "line": last_line(error)})
        return
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        text = "{}: {}".format(type(error).__name__, error)
        lacks = isinstance(error, (AttributeError, ImportError)) and re.search(r"\btorch\b", text) is not None
        finish({"error": text[:500], "missing": missing, "line": last_line(error), "lacks": lacks})
        return
    finish({"error": "never calls setup()", "line": 0})


def last_line(error):
    """Return the last line of ``setup.py`` in the traceback of an exception."""
    lines = [
        each.lineno
        for each in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(each.filename) == os.path.abspath(SETUP)
    ]
    if isinstance(error, SyntaxError) and error.filename == SETUP:
        return error.lineno or 0
    return lines[-1] if lines else 0


if __name__ == "__main__":
    main()
