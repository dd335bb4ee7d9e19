"""``doctor`` and ``prune`` in an environment with a torch and packages of ours, made for the test."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import uv

import warm
import wheels
from hatch_torch_ext import __version__, cli
from hatch_torch_ext.base import process
from hatch_torch_ext.base import uv as own_uv
from hatch_torch_ext.facts import variant as variants
from hatch_torch_ext.facts.manifest import Fallback, fallback_to_json
from hatch_torch_ext.user import doctor as health
from hatch_torch_ext.user import machine
from merged import merge_wheels
from trees import compile_library

CPU28, CPU29 = "torch2.8_cpu_cxx11", "torch2.9_cpu_cxx11"
TORCH = "__version__ = '2.8.0+cpu'\nclass _C: _GLIBCXX_USE_CXX11_ABI = True\nfrom . import version\n"
SCHEMA = Path(__file__).parent.parent.parent / "docs" / "doctor.schema.json"
VERSION = "cuda = {cuda!r}\nhip = xpu = None\ngit_version = 'abc'\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Return a wheel for torch 2.8 and 2.9, which share a file."""
    built = []
    for label, changes in ((CPU28, {}), (CPU29, {"torch": "2.9"})):
        files = {f"{label}/libx.so": label.encode() * 100, "shared/0123456789ab/liby.so": b"shared"}
        built.append((wheels.variant(label, files, machine=os.uname().machine, **changes), files))
    return merge_wheels([wheels.ours(tmp_path, built)], out=tmp_path / "dist")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the Python of an environment with a torch 2.8 for the CPU; this machine has no GPU."""
    monkeypatch.setenv(machine.DRIVER, "none")
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"])
    set_torch(tmp_path / "venv")
    return tmp_path / "venv" / "bin" / "python"


def site(environment: Path) -> Path:
    """Return the site-packages of an environment."""
    return next((environment.parent.parent / "lib").glob("python*/site-packages"))


def set_torch(prefix: Path, source: str = TORCH, cuda: str | None = None) -> None:
    """Put a tiny torch into an environment; no compiled file stays: two of one second and one size look alike."""
    folder = next((prefix / "lib").glob("python*/site-packages")) / "torch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "__init__.py").write_text(source)
    (folder / "version.py").write_text(VERSION.format(cuda=cuda))


def install(environment: Path, wheel: Path, *options: str) -> None:
    """Install a wheel without its requirements."""
    quiet = ["--quiet", "--no-deps", "--python", str(environment), *options]
    process.run([uv.find_uv_bin(), "pip", "install", *quiet, str(wheel)])


def doctor(environment: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run ``doctor --json`` and return its status and its answer."""
    capsys.readouterr()
    status = cli.main(["doctor", "--python", str(environment), "--json", *arguments])
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads(SCHEMA.read_text()))
    assert said["healthy"] is (status == 0)
    return status, said


def installs(environment: Path) -> str:
    """Return the command that installs into an environment."""
    return f"{own_uv.installed()} pip install --python {environment}"


def private(text: str) -> str:
    """Return a text as `doctor --json` has it: a home folder is `~` there, which a shell expands."""
    return health.private(text, os.environ)


def typed(command: str) -> None:
    """Type a command into a shell."""
    process.run(["sh", "-c", command])


def test_all_is_well(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The variant that would load is named on the one line of the package; nothing is to be typed."""
    install(environment, wheel)
    status, said = doctor(environment, capsys)
    assert (status, said["problems"], said["commands"]) == (0, [], [])
    (package,) = said["packages"]
    assert package["chosen"] == CPU28
    assert package["verdicts"][CPU29] == "rejected: built for torch 2.9, found 2.8.0+cpu"
    assert said["torch"]["version"] == "2.8.0+cpu"
    assert cli.main(["doctor", "--python", str(environment.parent.parent)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"package   my-pkg 1.0: {CPU28}"


def test_nothing_fits(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1, each variant has its reason, and what is to be typed installs the right torch."""
    install(environment, wheel)
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.13.0"))
    status, said = doctor(environment, capsys)
    assert (status, said["problems"]) == (1, ["my-pkg 1.0 has no variant that matches this environment"])
    assert said["commands"] == [f"hatch-torch-ext install --python {environment} {wheel}"]
    assert cli.main(["doctor", "--python", str(environment)]) == 1
    assert f"          {CPU29}: rejected: built for torch 2.9" in capsys.readouterr().out


def test_nothing_fits_what_no_index_has(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A package that did not come from an index is not requested there: what has its name may be somebody else's."""
    install(environment, wheel)
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.13.0"))
    wheel.unlink()
    _, said = doctor(environment, capsys)
    index = "--index-url https://download.pytorch.org/whl/cpu"
    assert said["commands"] == [private(f'{installs(environment)} "torch==2.9.*" {index}')]
    (record,) = site(environment).glob("my_pkg-*/direct_url.json")
    record.unlink()  # as if from an index
    _, said = doctor(environment, capsys)
    assert said["commands"] == [f"hatch-torch-ext install --python {environment} my-pkg"]


def test_torch_that_does_not_import(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its error is shown, without a traceback."""
    install(environment, wheel)
    set_torch(environment.parent.parent, "raise OSError('libcudart.so.13: cannot open shared object file')\n")
    status, said = doctor(environment, capsys)
    assert status == 1
    assert "torch cannot be imported: OSError: libcudart.so.13: cannot open shared object file" in said["problems"]


def test_a_driver_that_is_too_old(
    environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver is named with the one that torch's CUDA asks for; a card without code in torch is named too."""
    monkeypatch.delenv(machine.DRIVER)
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 550.54.15, 9.0, NVIDIA H100, GPU-1'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    set_torch(environment.parent.parent, TORCH.replace("+cpu", "+cu130"), cuda="13.0")
    _, said = doctor(environment, capsys)
    assert said["problems"] == [
        "the NVIDIA driver (550.54.15) is too old for this torch, built for CUDA 13.0, which asks for 580 or newer"
    ]
    smi.write_text("#!/bin/sh\necho '0, 580.65.06, 7.0, Tesla V100, GPU-1'\n")
    _, said = doctor(environment, capsys)
    named = "GPU 0 (Tesla V100, compute capability 7.0)"
    assert said["problems"] == [f"torch's build for CUDA 13.0 has no code for {named}"]


@pytest.mark.performs("update the driver")
def test_a_driver_that_cannot_compile_ptx(
    environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PTX of a CUDA that is newer than the driver's is named; a driver of that CUDA compiles it."""
    label = "torch2.8_cu12.8_cxx11"
    files = {f"{label}/libx.so": b"x"}
    facts = {"backend": "cuda", "cuda": "12.8", "archs": ("8.0", "9.0+PTX"), "machine": os.uname().machine}
    draft = wheels.ours(tmp_path, [(wheels.variant(label, files, **facts), files)])
    install(environment, merge_wheels([draft], out=tmp_path / "dist"))
    set_torch(environment.parent.parent, TORCH.replace("+cpu", "+cu128"), cuda="12.8")
    monkeypatch.delenv(machine.DRIVER)
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    told = "my-pkg has only PTX for GPU 0, made by CUDA 12.8, and this driver compiles PTX up to CUDA 12.4"
    drivers: tuple[tuple[str, int, list[str]], ...] = (
        ("550.54.15", 12040, [f"{told}: update the driver"]),
        ("570.26", 12080, []),
    )
    for driver, cuda, problems in drivers:
        smi.write_text(f"#!/bin/sh\necho '0, {driver}, 12.0, NVIDIA B200, GPU-1'\n")
        smi.chmod(0o755)
        source = f"int cuDriverGetVersion(int *version) {{ *version = {cuda}; return 0; }}"
        monkeypatch.setenv("LD_LIBRARY_PATH", str(compile_library(tmp_path / driver / "libcuda.so.1", source).parent))
        _, said = doctor(environment, capsys)
        assert said["problems"] == problems


def other(tmp_path: Path, name: str, torch: str) -> Path:
    """Return a wheel of another package, for one release of torch."""
    label = f"torch{torch}_cpu_cxx11"
    files = {f"{label}/lib{name}.so": name.encode()}
    variant = wheels.variant(label, files, torch=torch, machine=os.uname().machine)
    folder = tmp_path / name
    folder.mkdir()
    draft = wheels.ours(folder, [(variant, files)], package=name)
    return merge_wheels([draft], out=tmp_path / "dist")


def test_several_problems(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two packages for another torch have one command, since they need one torch; what is pruned has its own, first."""
    install(environment, wheel)
    assert cli.main(["prune", "my-pkg", "--python", str(environment)]) == 0
    install(environment, other(tmp_path, "second", "2.8"))
    install(environment, third := other(tmp_path, "third", "2.10"))
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.9.1"))
    status, said = doctor(environment, capsys)
    assert status == 1
    assert said["problems"] == [
        f"my-pkg 1.0 was pruned: its variant {CPU29} would be loaded here, and is removed",
        "second 1.0 has no variant that matches this environment",
        "third 1.0 has no variant that matches this environment",
    ]
    again = f"{installs(environment)} --force-reinstall --no-deps {wheel}"
    second = tmp_path / "dist" / third.name.replace("third", "second")
    both = f"hatch-torch-ext install --python {environment} {second} {third}"
    assert said["commands"] == [private(again), both]
    assert [each["pruned"] for each in said["packages"]] == [[CPU29], [], []]
    assert cli.main(["doctor", "--python", str(environment)]) == 1
    told = capsys.readouterr().out
    assert "package   my-pkg 1.0: nothing fits; 1 pruned\n" in told
    assert f"          {CPU29}: removed by prune\n" in told
    assert told.endswith(f"type      {again}\ntype      {both}\n")
    typed(again)
    _, said = doctor(environment, capsys, "my-pkg")
    assert (said["problems"], said["packages"][0]["chosen"]) == ([], CPU29)


def test_all_folders_of_the_path(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of each folder of PYTHONPATH, the first too; of one that is in both, the one that Python imports."""
    for folder in ("first", "second"):
        install(environment, wheel, "--target", str(tmp_path / folder))
    install(environment, other(tmp_path, "third", "2.8"), "--target", str(tmp_path / "first"))
    assert cli.main(["prune", "my-pkg", "--python", str(environment), "--target", str(tmp_path / "second")]) == 0
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    _, said = doctor(environment, capsys)
    assert [(each["distribution"], each["pruned"]) for each in said["packages"]] == [("my-pkg", []), ("third", [])]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'second'}:{tmp_path / 'first'}")
    _, said = doctor(environment, capsys)
    assert [(each["distribution"], each["pruned"]) for each in said["packages"]] == [("my-pkg", [CPU29]), ("third", [])]


@pytest.mark.performs("is a copy that no installer knows, and hides")
def test_packages_that_no_record_lists(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distributors remove RECORD, and people copy folders: such a package is reported, and so is one that it hides."""
    install(environment, wheel)
    copy = tmp_path / "other place" / "my_pkg"
    shutil.copytree(site(environment) / "my_pkg", copy)
    (copy / "_torch_ext" / CPU28 / "libx.so").unlink()
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    status, said = doctor(environment, capsys)
    hides = f"{copy} is a copy that no installer knows, and hides my-pkg 1.0 in {site(environment)}: remove it"
    assert (status, private(hides) in said["problems"]) == (1, True)
    assert said["commands"][0] == private(f"rm -r '{copy}'")
    typed(f"rm -r '{copy}'")
    assert doctor(environment, capsys)[0] == 0
    next(site(environment).glob("my_pkg-*.dist-info/RECORD")).unlink()
    status, said = doctor(environment, capsys)
    assert [(each["distribution"], each["version"], each["chosen"]) for each in said["packages"]] == [
        ("my-pkg", "1.0", CPU28)
    ]
    shutil.rmtree(next(site(environment).glob("my_pkg-*.dist-info")))
    (site(environment) / "my_pkg/_torch_ext" / CPU28 / "libx.so").unlink()
    status, said = doctor(environment, capsys)
    assert (status, said["packages"][0]["version"]) == (1, "")
    typed(said["commands"][0].partition(" && ")[0].replace("~", str(Path.home()), 1))
    assert not (site(environment) / "my_pkg").exists()


def test_a_damaged_file(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing or damaged is a problem, and the package is installed again, not with another torch."""
    install(environment, wheel)
    folder = site(environment) / "my_pkg/_torch_ext"
    for file, words in (
        (folder / CPU28 / "libx.so", "libx.so cannot be read (No such file or directory)"),
        (folder / "help.py", "my-pkg 1.0 is damaged: its loader gives no answer"),
    ):
        file.unlink()
        status, said = doctor(environment, capsys)
        (problem,) = said["problems"]
        assert (status, said["packages"][0]["works"], words in problem) == (1, False, True), problem
        (command,) = said["commands"]
        typed(command)
        assert doctor(environment, capsys)[0] == 0


def test_a_vendors_torch(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells to replace it: what lets the package use it comes first; a package is added without a torch."""
    install(environment, wheel)
    set_torch(environment.parent.parent, TORCH.replace("2.8.0+cpu", "2.9.0a0+145a3a7bda.nv25.10"))
    _, said = doctor(environment, capsys, "my-pkg", "another-pkg")
    assert said["problems"] == [
        "my-pkg 1.0 has variants for the release of this torch, which is a pre-release or a vendor's build",
        f"another-pkg is not installed in {environment}, or was not made with hatch-torch-ext",
    ]
    assert said["commands"] == [
        "export TORCH_EXT_PRERELEASE=1",
        private(f"{installs(environment)} --no-deps another-pkg"),
    ]
    monkeypatch.setenv("TORCH_EXT_PRERELEASE", "1")
    status, said = doctor(environment, capsys)
    assert (status, said["packages"][0]["chosen"]) == (0, CPU29)


def test_a_build_comes_before_another_torch(
    environment: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where the wheel holds its sources, a build costs less than a torch, and leaves the other packages alone."""
    install(environment, other(tmp_path, "sourced", "2.8"))
    sources = fallback_to_json(Fallback(version="1.0", source=".", options={}, files=()))
    manifest = site(environment) / "sourced/_torch_ext/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "fallback": sources}))
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.13.0"))
    _, said = doctor(environment, capsys)
    assert said["problems"] == ["sourced 1.0 has no variant that matches this environment"]
    assert said["commands"] == [f"{environment} -m sourced._variants --build"]
    set_torch(environment.parent.parent, "raise OSError('no libcudart')")
    _, said = doctor(environment, capsys)
    (command,) = said["commands"]
    assert command.startswith(f"hatch-torch-ext install --python {environment} torch ")


def test_bug_reports_hold_no_secrets(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the home, nor the user's name, nor a token."""
    install(environment, wheel)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "jane.doe")
    monkeypatch.setenv("CUDA_HOME", "/opt/jane.doe/cuda")
    monkeypatch.setenv("UV_INDEX_PRIVATE_PASSWORD", "hunter2hunter2")
    monkeypatch.setenv("CUDA_PATH", "/opt/hunter2hunter2")
    _, said = doctor(environment, capsys)
    text = json.dumps(said)
    assert str(tmp_path) not in text
    assert "jane.doe" not in text
    assert "hunter2hunter2" not in text
    assert "~/venv" in text


def test_a_package_that_is_not_there(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and installing it is what is typed."""
    status, said = doctor(environment, capsys, "other-pkg")
    assert status == 1
    assert said["commands"] == [f"hatch-torch-ext install --python {environment} other-pkg"]


def test_pruning_removes_what_cannot_load(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stays loads, RECORD stays true, and uninstalling leaves nothing behind."""
    install(environment, wheel)
    package = site(environment) / "my_pkg"
    assert cli.main(["prune", "my-pkg", "--python", str(environment), "--dry-run"]) == 0
    assert "would remove 1 of 2 variants" in capsys.readouterr().out
    assert (package / "_torch_ext" / CPU29).is_dir()
    assert cli.main(["prune", "my_pkg", "--python", str(environment)]) == 0
    said = capsys.readouterr().out
    assert "my-pkg: removed 1 of 2 variants" in said
    assert f"the way back: {installs(environment)} --force-reinstall --no-deps {wheel}" in said
    left = {path.name for path in (package / "_torch_ext").iterdir()} - {"__pycache__"}
    assert sorted(left) == ["help.py", "manifest.json", "shared", CPU28]
    status, _ = doctor(environment, capsys)
    assert status == 0
    process.run([uv.find_uv_bin(), "pip", "uninstall", "--quiet", "--python", environment, "my-pkg"])
    assert not package.exists()


def test_pruning_a_target_folder(
    environment: Path, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that pip's --target filled is pruned for the torch of an environment, and the way back fills it."""
    install(environment, wheel, "--target", str(tmp_path / "app"))
    arguments = ["prune", "my-pkg", "--python", str(environment), "--target", str(tmp_path / "app")]
    assert cli.main(arguments) == 0
    assert not (tmp_path / "app/my_pkg/_torch_ext" / CPU29).exists()
    typed(capsys.readouterr().out.partition("the way back: ")[2])
    assert (tmp_path / "app/my_pkg/_torch_ext" / CPU29).exists()
    assert cli.main(arguments) == 0
    assert cli.main(arguments) == 0  # again: nothing more goes


def test_pruning_what_cannot_be_written(environment: Path, wheel: Path) -> None:
    """A read-only environment is reported before anything is changed; one that can be written is pruned."""
    install(environment, wheel)
    words = [sys.executable, "-m", "hatch_torch_ext", "prune", "my-pkg", "--python", str(environment)]
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && "$@"'
    inside = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-c", script, str(site(environment))]
    if process.run([*inside, "true"], check=False).returncode:
        pytest.skip("no namespaces here, in which a folder is read-only for everybody")
    done = process.run([*inside, *words], check=False)
    assert (done.returncode, done.stdout) == (1, "")
    folder = site(environment) / "my_pkg" / "_torch_ext"
    assert done.stderr.strip().endswith(
        f"my-pkg is not pruned: {folder} cannot be written (Read-only file system). Prune it where it is installed, as "
        "the user who installs it: in a Dockerfile, in the same RUN."
    )
    assert (folder / CPU29).is_dir()
    warm.run(words)
    assert not (folder / CPU29).exists()


def test_a_variable_of_one_process_prunes_nothing_for_others(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variant that TORCH_EXT_VARIANT forces here is not what another process of this environment loads."""
    install(environment, wheel)
    monkeypatch.setenv("TORCH_EXT_VARIANT", CPU29)
    monkeypatch.setenv("MY_PKG_TORCH_EXT_VARIANT", CPU29)
    assert cli.main(["prune", "my-pkg", "--python", str(environment), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["removed"] == [CPU29]
    monkeypatch.delenv("TORCH_EXT_VARIANT")
    monkeypatch.delenv("MY_PKG_TORCH_EXT_VARIANT")
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.9.1"))
    assert cli.main(["prune", "my-pkg", "--python", str(environment)]) == 1
    told = capsys.readouterr().err
    assert f"my-pkg: an earlier prune removed {CPU29}, which this environment would load." in told
    typed(told.rpartition("The way back: ")[2])
    assert cli.main(["prune", "my-pkg", "--python", str(environment), "--dry-run"]) == 0


@pytest.mark.performs("Install a torch that it has")
def test_nothing_is_pruned_where_nothing_fits(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pruning everything would be no help; with a torch that it is for, the rest goes."""
    install(environment, wheel)
    set_torch(environment.parent.parent, TORCH.replace("2.8.0", "2.13.0"))
    assert cli.main(["prune", "my-pkg", "--python", str(environment)]) == 1
    said = capsys.readouterr().err
    assert f"can load ({CPU28}, {CPU29}). Nothing is removed. Install a torch that it has a variant for first: " in said
    assert said.endswith(f"hatch-torch-ext install --python {environment} {wheel}\n")
    assert (site(environment) / "my_pkg/_torch_ext" / CPU29).is_dir()
    set_torch(environment.parent.parent)
    assert cli.main(["prune", "my-pkg", "--python", str(environment)]) == 0


@pytest.mark.performs("Reinstall it")
def test_an_invalid_manifest(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a problem with a remedy, which helps; the package still counts as installed."""
    install(environment, wheel)
    file = site(environment) / "my_pkg/_torch_ext/manifest.json"
    text = file.read_text()

    def change(damaged: str) -> None:
        file.unlink()  # the installer's cache may have it, too
        file.write_text(damaged)

    def again(said: str) -> None:
        typed(said.rpartition(": ")[2])
        assert cli.main(["prune", "my-pkg", "--python", str(environment), "--dry-run"]) == 0

    (site(environment) / "my_pkg" / "theirs.so").touch()
    change(text.replace(f'"{CPU29}/libx.so": "_torch_ext/{CPU29}/libx.so"', f'"{CPU29}/libx.so": "theirs.so"'))
    assert cli.main(["prune", "my-pkg", "--python", str(environment)]) == 1
    told = capsys.readouterr().err
    refusal = "theirs.so, which is not a file of this package. Nothing is removed. Reinstall it: "
    assert f"{refusal}{installs(environment)} " in told
    again(told)
    change("[" * 100_000)
    status, said = doctor(environment, capsys, "my-pkg")
    assert status == 1
    (problem,) = said["problems"]
    assert "my_pkg/_torch_ext/manifest.json is invalid (is not JSON" in problem
    assert problem.endswith(private(f": {installs(environment)} --force-reinstall --no-deps {wheel}"))
    again(problem)


def test_a_manifest_of_a_later_format(environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The package may be in order: hatch-torch-ext is too old for it, and no command installs the package again."""
    install(environment, wheel)
    file = site(environment) / "my_pkg/_torch_ext/manifest.json"
    manifest = json.loads(file.read_text())
    file.unlink()  # the installer's cache may have it, too
    file.write_text(json.dumps({**manifest, "schema": 2}))
    status, said = doctor(environment, capsys)
    known = f"hatch-torch-ext {__version__} reads formats up to 1: upgrade hatch-torch-ext"
    assert said["problems"] == [private(f"my_pkg: {file} is of format 2 (`schema`), and {known}")]
    assert (status, said["commands"], said["packages"]) == (1, [], [])


@pytest.mark.performs("Name another")
def test_another_python_is_named(
    environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is not a Python, and a path that is none, are reported with the option that takes another."""
    for python, said in (
        (Path("/bin/true"), "/bin/true (--python) is not a Python that works. Name another with --python."),
        (tmp_path / "none", "(--python). Name another Python with --python."),
    ):
        assert cli.main(["doctor", "--python", str(python)]) == 1
        assert capsys.readouterr().err.strip().endswith(said)
        assert cli.main(["doctor", "--python", str(environment)]) == 0
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "gone"))
    assert cli.main(["doctor"]) == 1
    assert "(VIRTUAL_ENV). Name another Python with --python." in capsys.readouterr().err


@pytest.mark.parametrize("said", ["[]", '{"chosen": [], "verdicts": 7}', '{"a":' * 100_000, ""])
def test_a_loader_that_answers_anything(
    environment: Path, wheel: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    """A package whose loader gives an invalid answer is reported as not working."""
    install(environment, wheel)
    (site(environment) / "my_pkg/_variants.py").write_text(f"print({said!r})")
    status, found = doctor(environment, capsys)
    is_object = said.endswith("}")
    why = "has no variant that matches this environment" if is_object else "is damaged: its loader gives no answer"
    assert (status, found["problems"]) == (1, [f"my-pkg 1.0 {why}"])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"namespaces": ("ops",), "operators": ("ops::nms",)}, "register the operator namespace `ops`"),
        ({"operators": ("ops::nms", "ops::roi")}, "define the operator `ops::nms`"),
    ],
)
def test_two_packages_of_one_namespace(
    environment: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], sentence: str
) -> None:
    """Both register the same operators, so that importing the second would abort the process: reported once."""
    for name in ("my_pkg", "other_pkg"):
        files = {f"{CPU28}/lib{name}.so": b"x"}
        variant = wheels.variant(CPU28, files, machine=os.uname().machine)
        file = replace(variant.files[0], **fields)
        manifest = {"distribution": name, "variants": [variants.to_json(replace(variant, files=(file,)))]}
        folder = site(environment) / name / "_torch_ext"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder.parent / "_variants.py").write_text(f"print({json.dumps({'chosen': CPU28})!r})")
        record = site(environment) / f"{name}-1.0.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text(f"{name}/_torch_ext/manifest.json,,\n")
    _, said = doctor(environment, capsys)
    assert said["problems"] == [f"my_pkg and other_pkg both {sentence}"]
