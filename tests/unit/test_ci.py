"""Jobs for GitHub: which entries go where, and what the workflows promise."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import values
from hatch_torch_ext import __version__, matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import main
from hatch_torch_ext.init import fresh
from hatch_torch_ext.pipeline import shards

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")
PROJECT = Path(__file__).resolve().parent.parent.parent
REUSABLE = PROJECT / ".github" / "workflows" / "build-wheels.yml"
CI = resources.files("hatch_torch_ext") / "resources" / "ci"
CALLERS = fresh.CALLERS
PINNED = f"hatch-torch-ext[build]=={__version__}"


def entry(name: str, cuda: str | None = None) -> Entry:
    """Return an entry of the matrix."""
    return values.entry(name, torch_requirement="torch", cuda=cuda)


def test_jobs_by_machine_and_image() -> None:
    """Each image has its own jobs, each machine its own; parts are counted over all of them."""
    entries = [entry("a"), entry("b", "cpu"), entry("c", "12.8"), entry("d", "13.0")]
    found = shards.builds(
        entries,
        count=4,
        images={"12": "cuda12_{machine}", "*": "plain_{machine}"},
        runners={"x86_64": "here", "aarch64": "there"},
    )
    assert [(job["part"], job["runner"], job["image"], job["only"]) for job in found] == [
        ("1/8", "there", "plain_aarch64", "d"),
        ("2/8", "there", "plain_aarch64", "a"),
        ("3/8", "there", "plain_aarch64", "b"),
        ("4/8", "there", "cuda12_aarch64", "c"),
        ("5/8", "here", "plain_x86_64", "d"),
        ("6/8", "here", "plain_x86_64", "a"),
        ("7/8", "here", "plain_x86_64", "b"),
        ("8/8", "here", "cuda12_x86_64", "c"),
    ]


def test_entries_go_to_the_runner_of_their_machine() -> None:
    """An entry with a machine is built and tested only there; without a runner, in the image for it, and emulated."""
    entries = [entry("any"), replace(entry("x"), machine="x86_64"), replace(entry("a"), machine="aarch64")]
    images = {"aarch64": "cross", "*": "plain_{machine}"}

    def told(runners: dict[str, str]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        built = shards.builds(entries, count=1, images=images, runners=runners)
        tested = shards.tests(entries, runners, gpu="")
        return (
            [(job["runner"], job["image"], job["only"]) for job in built],
            [(job["entry"], job["runner"], job["emulated"]) for job in tested],
        )

    assert told({"x86_64": "here", "aarch64": "there"}) == (
        [("there", "plain_aarch64", "any,a"), ("here", "plain_x86_64", "any,x")],
        [("any", "here", ""), ("x", "here", ""), ("a", "there", "")],
    )
    assert told({"x86_64": "here"}) == (
        [("here", "plain_x86_64", "any,x"), ("here", "cross", "a")],
        [("any", "here", ""), ("x", "here", ""), ("a", "here", "aarch64")],
    )


def test_every_entry_is_in_one_job_of_each_machine() -> None:
    """Whatever the number of shards."""
    entries = [entry(f"e{number}", "12.8" if number % 3 else None) for number in range(20)]
    for count in (1, 2, 7, 100):
        found = shards.builds(entries, count=count, images={"cpu": "i", "12.8": "j"}, runners={"x86_64": "r"})
        names = [name for job in found for name in job["only"].split(",")]
        assert sorted(names) == sorted(each.name for each in entries)


@pytest.mark.performs("write a value of the matrix differently")
def test_values_with_a_comma_or_a_space() -> None:
    """A job names its entries by globs, which commas and spaces separate; entries that only these tell apart fail."""
    entries = [entry("a-1, 2"), entry("a-1,,3"), entry("b[x]")]
    (job,) = shards.builds(entries, count=1, images={"*": "i"}, runners={"x86_64": "r"})
    globs = job["only"].split(",")
    assert [matrix.matching(entries, [glob]) for glob in globs] == [{each.name} for each in entries]
    assert " " not in job["only"]
    with pytest.raises(ConfigurationError, match="write a value of the matrix differently"):
        shards.builds([*entries, entry("a-1 ,2")], count=1, images={"*": "i"}, runners={"x86_64": "r"})
    assert shards.builds([*entries, entry("a-1;2")], count=1, images={"*": "i"}, runners={"x86_64": "r"})


@pytest.mark.performs("=IMAGE`")
def test_an_entry_without_an_image() -> None:
    """Either of the two images that the message names is enough."""
    given = "13=i"

    def jobs(images: str) -> list[dict[str, str]]:
        pairs = shards.pairs(images, "--images")
        return shards.builds([entry("a", "12.8")], count=1, images=pairs, runners={"x86_64": "r"})

    with pytest.raises(ConfigurationError) as caught:
        jobs(given)
    assert str(caught.value) == ("a: `--images` has no image for `12.8`: add `12.8=IMAGE`, or `*=IMAGE` for all others")
    for added in re.findall("`([^`]*=IMAGE)`", str(caught.value)):
        assert [job["image"] for job in jobs(f"{given} {added}")] == ["IMAGE"]


@pytest.mark.performs("write NAME=VALUE", "take fewer `--shards`")
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: shards.builds([entry("a")], count=0, images={"*": "i"}, runners={"x86_64": "r"}),
            "`--shards 0` must be at least 1",
        ),
        (
            lambda: shards.builds(
                [entry(f"e{n}") for n in range(300)], count=300, images={"*": "i"}, runners={"x86_64": "r"}
            ),
            "300 jobs are more than the 256 that a matrix of GitHub may have: take fewer `--shards`",
        ),
        (
            lambda: shards.pairs("12", "--images"),
            "`--images`: `12` must be NAME=VALUE, several of them separated by spaces",
        ),
        (
            lambda: shards.pairs(" ", "--images"),
            "`--images` is empty: write NAME=VALUE, several of them separated by spaces",
        ),
    ],
)
def test_jobs_that_cannot_be(ask: Any, message: str) -> None:
    """Each mistake with what to write, which is read."""
    with pytest.raises(ConfigurationError) as caught:
        ask()
    assert str(caught.value) == message
    if "NAME=VALUE, several of them separated by spaces" in message:
        assert shards.pairs("NAME=VALUE other=one", "--images") == {"NAME": "VALUE", "other": "one"}
    if "take fewer" in message:
        entries = [entry(f"e{n}") for n in range(300)]
        assert len(shards.builds(entries, count=256, images={"*": "i"}, runners={"x86_64": "r"})) == 256


@pytest.mark.performs("replace it with `--force`")
def test_ci_init_writes_four_workflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reusable ones and their callers; what is another's stays, unless `--force` says otherwise.

    They install the hatch-torch-ext that wrote them. What the author reads is short.
    """
    monkeypatch.chdir(tmp_path)
    assert main(["ci", "init"]) == 1
    assert f"There is no pyproject.toml in {tmp_path}: " in capsys.readouterr().err
    (tmp_path / "pyproject.toml").touch()
    assert main(["ci", "init"]) == 0
    folder = tmp_path / ".github" / "workflows"
    names = ["add-torch.yml", "build-wheels.yml", "follow-torch.yml", "wheels.yml"]
    assert sorted(path.name for path in folder.iterdir()) == names
    for name in CALLERS:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        assert len([line for line in lines if line and not line.startswith("#")]) <= 33, name
    texts = [path.read_text(encoding="utf-8") for path in folder.iterdir()]
    assert all(re.findall(r": (hatch-torch-ext\[.*)", text) == [PINNED] * text.count("-ext[build]") for text in texts)
    assert main(["ci", "init"]) == 0
    (folder / "wheels.yml").write_text("name: mine\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["ci", "init"]) == 1
    assert capsys.readouterr().err == (
        f"hatch-torch-ext: {folder / 'wheels.yml'} exists and has other contents. Move it away, or replace it with "
        "`--force`.\n"
    )
    assert (folder / "wheels.yml").read_text(encoding="utf-8") == "name: mine\n"
    assert main(["ci", "init", "--force"]) == 0


def test_in_a_subfolder_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the repository's root, where GitHub reads them, for that folder: its tags, its pull requests, its artefacts.

    A second project there shares the reusable workflow (CASE 115).
    """
    (tmp_path / ".git").mkdir()
    for name in ("ops", "more ops"):
        project = tmp_path / "python" / name
        project.mkdir(parents=True)
        (project / "pyproject.toml").touch()
        monkeypatch.chdir(project)
        assert main(["ci", "init"]) == 0
    folder = tmp_path / ".github" / "workflows"
    assert capsys.readouterr().out.splitlines()[0] == str(folder / "build-wheels.yml")
    assert sorted(path.name for path in folder.iterdir()) == [
        *("add-torch.yml", "build-wheels.yml"),
        *("follow-torch-python-more-ops.yml", "follow-torch-python-ops.yml"),
        *("wheels-python-more-ops.yml", "wheels-python-ops.yml"),
    ]
    wheels = yaml.safe_load((folder / "wheels-python-ops.yml").read_text(encoding="utf-8"))
    assert wheels[True]["push"]["tags"] == ["python-ops-v*"]
    assert wheels[True]["pull_request"] == {"paths": ["python/ops/**"]}
    assert wheels["jobs"]["build"]["with"]["working-directory"] == "python/ops"
    assert wheels["jobs"]["build"]["with"]["artifact-prefix"] == "python-ops-"
    assert wheels["jobs"]["publish"]["steps"][0]["with"]["name"] == "python-ops-dist"
    follow = yaml.safe_load((folder / "follow-torch-python-ops.yml").read_text(encoding="utf-8"))
    assert (follow["name"], follow["concurrency"]) == ("follow-torch-python-ops", "follow-torch-python-ops")
    given = follow["jobs"]["build"]["with"]
    assert (given["working-directory"], given["artifact-prefix"]) == ("python/ops", "python-ops-")
    assert follow["jobs"]["publish"]["steps"][0]["with"]["name"] == "python-ops-dist"


@pytest.mark.performs("reads no workflow from a link: remove it")
def test_a_link_as_a_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be written where it leads (CASE 132): refused, also with `--force`; without it, all are written."""
    project = tmp_path / "project"
    folder = project / ".github" / "workflows"
    folder.mkdir(parents=True)
    outside = tmp_path / "outside.yml"
    (folder / "wheels.yml").symlink_to(outside)
    (project / "pyproject.toml").touch()
    monkeypatch.chdir(project)
    assert main(["ci", "init", "--force"]) == 1
    assert capsys.readouterr().err == (
        f"hatch-torch-ext: {folder / 'wheels.yml'} is a link, and GitHub reads no workflow from a link: remove it.\n"
    )
    assert (outside.exists(), len(list(folder.iterdir()))) == (False, 1)
    (folder / "wheels.yml").unlink()
    assert main(["ci", "init"]) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").touch()
    (tmp_path / "other" / ".github").symlink_to(project / ".github")
    monkeypatch.chdir(tmp_path / "other")
    assert main(["ci", "init"]) == 1
    assert "is a link out of the repository" in capsys.readouterr().err


@pytest.mark.parametrize("tag", ["v1.2", "1.2", "v1.2.0", "my-pkg-v1.2", "python/my-pkg/1.2"])
def test_a_tag_of_the_version(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a `v` or a prefix, or without; both are printed for the steps that follow."""
    project_at(tmp_path, monkeypatch)
    assert main(["ci", "tag", tag]) == 0
    assert capsys.readouterr().out == "name=my-pkg\nversion=1.2\n"


@pytest.mark.performs("tag the commit that has")
@pytest.mark.parametrize("tag", ["v1.3", "v1.2rc1", "release", "v"])
def test_a_tag_of_another_version(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing would be published under a tag that is not its version; the tag that the message names is right."""
    project_at(tmp_path, monkeypatch)
    assert main(["ci", "tag", tag]) == 1
    error = capsys.readouterr().err
    assert f"the tag `{tag}` does not name the version of the project, 1.2: " in error
    assert main(["ci", "tag", error.rpartition("`")[0].rpartition("`")[2]]) == 0


def project_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a project of version 1.2 there the current one."""
    for name in ("src/my_pkg", "csrc"):
        (folder / name).mkdir(parents=True)
    (folder / "csrc" / "CMakeLists.txt").touch()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling", "hatch-torch-ext"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "my-pkg"\nversion = "1.2"\n[tool.hatch.build.targets.wheel.hooks.torch-ext]\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(folder)


@pytest.mark.performs("(the oldest and the newest), or globs")
def test_entries_that_a_run_is_for() -> None:
    """All, globs, or the oldest and the newest; what is left out is missing nowhere."""
    entries = [replace(entry(name), torch=name) for name in ("2.9", "2.8", "2.13", "2.10")]

    def names(text: str) -> list[str]:
        return [each.name for each in shards.chosen(entries, text)]

    assert (names("all"), names("ends"), names("2.1?")) == (
        ["2.9", "2.8", "2.13", "2.10"],
        ["2.8", "2.13"],
        ["2.13", "2.10"],
    )
    with pytest.raises(ConfigurationError, match=r"`--entries 3\.\*` names no entry: write `all`, `ends` \(the old"):
        names("3.*")
    chosen = shards.chosen(entries, "ends")
    left_out = [each for each in entries if each not in chosen]
    (job,) = shards.builds(chosen, count=1, images={"*": "i"}, runners={"x86_64": "r"}, left_out=left_out)
    assert (job["only"], job["skip"], job["number"]) == ("2.8,2.13", "2.9,2.10", "1")
    (other,) = shards.builds(entries, count=1, images={"*": "j"}, runners={"x86_64": "r"})
    assert (other["skip"], other["key"] == job["key"]) == ("", False)


def test_entries_with_cuda_are_tested_where_the_gpu_is() -> None:
    """On the runner that is named for them; an entry for another machine is emulated elsewhere."""
    entries = [entry("a"), entry("b", "12.8"), replace(entry("c", "12.8"), machine="aarch64")]
    found = shards.tests(entries, {"x86_64": "here"}, gpu="gpu")
    assert [(job["entry"], job["runner"]) for job in found] == [("a", "here"), ("b", "gpu"), ("c", "here")]


def test_the_reusable_workflow_is_the_one_that_is_shipped() -> None:
    """`ci init` writes the file in .github/workflows, which is checked with this project's workflows."""
    assert (CI / "build-wheels.yml").read_text("utf-8") == REUSABLE.read_text(encoding="utf-8")


def test_inputs_declared_are_inputs_used() -> None:
    """GitHub reports neither an input that nothing reads nor one that is not declared: this test does."""
    declared = {}
    for name in fresh.REUSABLE:
        text = (CI / name).read_text("utf-8")
        declared[name] = yaml.safe_load(text)[True]["workflow_call"]["inputs"]  # YAML reads `on` as true
        assert set(re.findall(r"\binputs\.([\w-]+)", text)) == set(declared[name])
    for name in ("add-torch.yml", *CALLERS):
        called = yaml.safe_load((CI / name).read_text("utf-8"))["jobs"]["build"]
        assert set(called["with"]) <= set(declared[called["uses"].rpartition("/")[2]])
    builds, adds = declared["build-wheels.yml"], declared["add-torch.yml"]
    own = {"torch", "release"}
    assert {name: builds[name] for name in builds if name in adds} == {n: adds[n] for n in adds if n not in own}
    assert set(builds) - set(adds) == {"ref", "version", "entries", "extends", "sdist"}


@pytest.mark.parametrize(
    "path",
    [*sorted(REUSABLE.parent.glob("*.yml")), *(CI / name for name in ("add-torch.yml", *CALLERS))],
    ids=lambda path: path.name,
)
def test_what_jobs_and_steps_name_is_there(path: Path) -> None:
    """Jobs that are needed, their outputs, steps and called workflows: GitHub reads a name that is wrong as empty."""
    workflow = yaml.safe_load(path.read_text("utf-8"))
    jobs_by_name = workflow["jobs"]
    for job in jobs_by_name.values():
        asked = job.get("needs", [])
        needed = {asked} if isinstance(asked, str) else set(asked)
        assert needed <= set(jobs_by_name)
        for name, output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", str(job)):
            assert name in needed
            assert output in (called(jobs_by_name[name], path) or jobs_by_name[name])["outputs"]
        steps = {step["id"] for step in job.get("steps", ()) if "id" in step}
        assert set(re.findall(r"steps\.([\w-]+)\.", str(job))) <= steps
        assert (called(job, path) is not None) == ("uses" in job)


def called(job: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return what the workflow that the job calls declares for its callers; None for a job with steps of its own."""
    if (place := job.get("uses")) is None:
        return None
    folder = path.parent if (path.parent / Path(place).name).is_file() else REUSABLE.parent
    declared: dict[str, Any] = (
        yaml.safe_load((folder / Path(place).name).read_text("utf-8"))[True]["workflow_call"] or {}
    )
    return declared


def test_a_release_is_checked_before_it_is_published() -> None:
    """The publishing job is in the caller, as `ci init` writes it, and waits for the reusable workflow."""
    jobs_by_name = yaml.safe_load((REUSABLE.parent / "publish.yml").read_text("utf-8"))["jobs"]
    assert set(jobs_by_name["publish"]["needs"]) == {"build", "check"}
    assert jobs_by_name["check"]["uses"] == "./.github/workflows/check.yml"
    assert jobs_by_name["publish"]["permissions"] == {"id-token": "write"}
    assert jobs_by_name["publish"]["environment"] == "pypi"


@pytest.mark.parametrize("name", [*fresh.REUSABLE, *CALLERS])
def test_workflows_grant_little(name: str) -> None:
    """Nothing by default, reading in each job; only publishing may ask for a token, and is in the caller.

    What pushes a branch runs nothing of the project's matrix, and what opens the pull request has no code at all. What
    `follow-torch.yml` grants is what these two have, together: each job of the other file has its own.
    """
    text = (CI / name).read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    allowed = {
        "publish": {"id-token": "write"},
        "look": {"contents": "write"},
        "propose": {"contents": "read", "pull-requests": "write"},
    }
    if name == "follow-torch.yml":
        allowed["build"] = {"contents": "write", "pull-requests": "write"}
    for job, said in workflow["jobs"].items():
        assert said["permissions"] == allowed.get(job, {"contents": "read"})
    loose = [used for used in re.findall(r"uses: (\S+)", text) if not re.search(r"^\./|@[0-9a-f]{40}$", used)]
    assert loose == []


def test_each_step_is_a_command_of_ours() -> None:
    """A step installs hatch-torch-ext (or qemu, for tests of another machine), or runs it, hatch, or the author's."""
    workflow = yaml.safe_load(REUSABLE.read_text(encoding="utf-8"))
    lines = [
        line.strip()
        for job in workflow["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]
    command = r"(\w+=\$\()?(hatch-torch-ext|python3\.11 -m hatch_torch_ext|python -m hatchling build|hatch run) "
    install = r'python(3\.11)? -m pip install "\$REQUIREMENT"$'
    authors = r'bash -euo pipefail -c "\$BEFORE_BUILD"$'
    emulate = r"sudo apt-get update && sudo apt-get install --yes qemu-user-static$"
    output = r'echo "\w+=\$\w+" >> "\$GITHUB_OUTPUT"$'
    assert [line for line in lines if not re.match(f"{command}|{install}|{authors}|{emulate}|{output}", line)] == []
    assert not [line for line in lines if "${{" in line]
