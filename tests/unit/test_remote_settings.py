"""Where torch comes from: the hook's options, uv's variables, pip's; and what may be shown of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import disk
import values
from hatch_torch_ext.base import process, uv
from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.config import Config
from hatch_torch_ext.remote import http, settings
from hatch_torch_ext.sdk import nvidia


def read(
    environ: dict[str, str], *, index_url: str | None = None, extra: tuple[str, ...] = (), **variables: str
) -> settings.IndexSettings:
    """Return the settings of an entry with these variables under these options."""
    here = Path("/nowhere")
    entry = values.entry(
        name="matrix.x", variables=(("torch", "2.8"), *variables.items()), torch_requirement="torch",
    )  # fmt: skip
    config = Config(root=here, package="p", package_dir=here, source=here, index_url=index_url, extra_index_url=extra)
    return settings.read(entry, config, environ)


@pytest.mark.parametrize(
    ("environ", "option", "index"),
    [
        ({}, None, settings.PUBLIC_INDEX),
        ({"PIP_INDEX_URL": "https://pip/simple"}, None, "https://pip/simple"),
        ({"PIP_INDEX_URL": "https://pip/simple", "UV_INDEX_URL": "https://uv/simple"}, None, "https://uv/simple"),
        ({"UV_INDEX_URL": "https://old/simple", "UV_DEFAULT_INDEX": "https://new/simple"}, None, "https://new/simple"),
        ({"UV_DEFAULT_INDEX": "https://uv/simple"}, "https://hook/whl/{cuda}", "https://hook/whl/cu128"),
        ({"PIP_NO_INDEX": "1", "PIP_INDEX_URL": "https://pip/simple"}, None, None),
        ({"PIP_NO_INDEX": "0", "UV_NO_INDEX": "1"}, None, settings.PUBLIC_INDEX),
    ],
)
def test_main_index(environ: dict[str, str], option: str | None, index: str | None) -> None:
    """The hook's option comes first, then uv's variables, then pip's, then the public index. uv has no UV_NO_INDEX."""
    assert read(environ, index_url=option, cuda="12.8").index == index


def test_extra_indexes() -> None:
    """Extra indexes of all three add up, and compete as pip lets them."""
    environ = {"UV_INDEX": "https://one/simple https://two/simple", "PIP_EXTRA_INDEX_URL": "https://three/simple"}
    found = read(environ, extra=("https://hook/{torch}",))
    assert found.extra == ("https://hook/2.8", "https://one/simple", "https://two/simple", "https://three/simple")
    assert found.strategy == "unsafe-best-match"
    assert read({"UV_INDEX": "https://one/simple"}).strategy is None


@pytest.mark.parametrize(
    ("written", "filled"), [("cu126", "cu126"), ("12.6", "cu126"), ("cpu", "cpu"), ("13.0", "cu130")]
)
def test_cuda_field(written: str, filled: str) -> None:
    """``{cuda}`` is what torch's own index calls the build, however the matrix writes it."""
    assert read({}, index_url="https://x/whl/{cuda}", cuda=written).index == f"https://x/whl/{filled}"


def test_missing_field() -> None:
    """A field without a variable is an error that names both, without the password."""
    with pytest.raises(SdkError) as caught:
        read({}, index_url="https://user:pw@x/{build}/{torch}")
    assert str(caught.value) == (
        "matrix.x: `index-url` = 'https://x/{build}/{torch}' has the field {build}, but the entry has no `build` "
        "(it has torch). Add it to the matrix, or write the address without it"
    )


def test_credentials() -> None:
    """A wheel gets the credentials of the index on its own server, of the nearest path, and no others."""
    found = read(
        {
            "PIP_INDEX_URL": "https://a:b%40c@one.example/simple",
            "UV_INDEX": "lab=https://two.example/team/simple https://x:y@two.example/other",
            "UV_INDEX_LAB_USERNAME": "lab",
            "UV_INDEX_LAB_PASSWORD": "pw",
        }
    )
    assert found.credentials("https://one.example/files/torch.whl") == ("a", "b@c")
    assert found.credentials("https://two.example/team/torch.whl") == ("lab", "pw")
    assert found.credentials("https://two.example/other/torch.whl") == ("x", "y")
    assert found.credentials("https://one.example:8443/torch.whl") is None
    assert found.credentials("https://three.example/torch.whl") is None


@pytest.mark.performs("into .netrc")
def test_netrc(tmp_path: Path) -> None:
    """.netrc serves where no address has credentials; a broken one is as good as none."""
    (tmp_path / ".netrc").write_text("machine one.example login me password secret\n")
    found = read({"HOME": str(tmp_path)})
    assert found.credentials("https://one.example/torch.whl") == ("me", "secret")
    (tmp_path / ".netrc").write_text("nonsense\n")
    assert found.credentials("https://one.example/torch.whl") is None


def test_nothing_secret_is_shown() -> None:
    """Addresses are shown without user, password and query; texts of others are scrubbed."""
    url = "https://user:p%40ss@one.example/simple/?token=abc"
    assert settings.public(url) == "https://one.example/simple/"
    assert settings.without_credentials(url) == "https://one.example/simple/?token=abc"
    found = read({"PIP_INDEX_URL": "https://user:p%40ss@one.example/simple", "UV_INDEX": "https://token@two.example/"})
    assert found.scrub("p%40ss p@ss token user") == "**** **** **** user"


def test_lists_are_parted_as_uv_parts_them() -> None:
    """Find-links are separated by commas, indexes by spaces: a folder may hold a space, an address a comma."""
    found = read({"UV_FIND_LINKS": "/my wheels,/more", "UV_INDEX": "https://one/a,b https://two"})
    assert found.find_links == ("file:///my%20wheels", "/more")
    assert found.extra == ("https://one/a,b", "https://two")
    assert read({"PIP_FIND_LINKS": "/my wheels"}).find_links == ("/my", str(Path.cwd() / "wheels"))


def test_relative_paths_count_from_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools run in another folder: relative paths of the user are made absolute, addresses stay as they are."""
    monkeypatch.chdir(tmp_path)
    environ = {"UV_FIND_LINKS": "wheels,../a b", "UV_INDEX": "lab=simple https://one/x", "UV_DEFAULT_INDEX": "main"}
    above = f"{tmp_path.parent.as_uri()}/a%20b"
    assert settings.for_uv(environ) == {
        "UV_FIND_LINKS": f"{tmp_path}/wheels,{above}",
        "UV_INDEX": f"lab={tmp_path}/simple https://one/x",
        "UV_DEFAULT_INDEX": f"{tmp_path}/main",
    }
    found = read(environ)
    assert found.find_links == (f"{tmp_path}/wheels", above)
    assert found.indexes == (f"{tmp_path}/simple", "https://one/x", f"{tmp_path}/main")


def test_uv_has_no_variable_for_no_index() -> None:
    """Its other options of indexes have one, which its help names; once this one has it too, it is to be read."""
    words = process.run([uv.find(), "pip", "install", "--help"]).stdout
    assert "--no-index" in words
    assert "UV_FIND_LINKS" in words
    assert "UV_NO_INDEX" not in words
    assert settings.for_uv({"PIP_NO_INDEX": "1"}) == {"PIP_NO_INDEX": "1"}


def test_for_uv() -> None:
    """Variables of pip are translated unless uv's own are set."""
    pip = {
        "PIP_INDEX_URL": "https://pip/simple",
        "PIP_EXTRA_INDEX_URL": "https://a\n  https://b",
        "PIP_FIND_LINKS": "/wheels /more",
        "PIP_TRUSTED_HOST": "a",
        "PIP_CERT": "/ca.pem",
        "PIP_NO_INDEX": "false",
        "PIP_PROXY": "proxy:8080",
    }
    assert settings.for_uv(pip) == {
        "UV_DEFAULT_INDEX": "https://pip/simple",
        "UV_INDEX": "https://a https://b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a",
        "SSL_CERT_FILE": "/ca.pem",
        "ALL_PROXY": "http://proxy:8080",
    }
    mine = {"UV_INDEX_URL": "https://uv/simple", "UV_EXTRA_INDEX_URL": "https://c", "UV_FIND_LINKS": "/mine"}
    mine["HTTPS_PROXY"] = "http://other"
    assert settings.for_uv({**pip, **mine}) == {"UV_INSECURE_HOST": "a", "SSL_CERT_FILE": "/ca.pem"}


def test_other_settings(tmp_path: Path) -> None:
    """Certificates, trusted hosts, proxy and time-out are taken over; a time-out that is not a number is not."""
    (tmp_path / ".netrc").touch()
    environ = {
        "PIP_CERT": "/ca.pem", "PIP_TRUSTED_HOST": "one two", "UV_INSECURE_HOST": "three", "PIP_PROXY": "http://p:1",
        "PIP_DEFAULT_TIMEOUT": "7", "UV_HTTP_TIMEOUT": "soon", "HOME": str(tmp_path),
    }  # fmt: skip
    found = read(environ)
    assert found.certificates == Path("/ca.pem")
    assert found.trusted_hosts == ("one", "two", "three")
    assert (found.proxy, found.timeout, found.netrc) == ("http://p:1", 7.0, tmp_path / ".netrc")
    assert read({"PIP_PROXY": "p:1"}).proxy == "http://p:1"
    assert read({"PIP_PROXY": ""}).proxy is None


@pytest.mark.performs("Check PIP_")
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("PIP_PROXY", "socks4://u:secret@p:1", "the proxy cannot be used: Unknown scheme for proxy URL"),
        ("HTTP_PROXY", "socks4://u:secret@p:1", "the proxy cannot be used: Unknown scheme for proxy URL"),
        ("ALL_PROXY", "socks4://u:secret@p:1", "the proxy cannot be used: Unknown scheme for proxy URL"),
        ("PIP_CERT", "/nowhere/ca.pem", "the certificates (/nowhere/ca.pem) cannot be used: No such file"),
        ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem", "the certificates (/nowhere/ca.pem) cannot be used: No such file"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "the certificates (/nowhere/ca.pem) cannot be used: No such file"),
    ],
)
def test_a_connection_that_cannot_be_set_up(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unusable proxy or certificate file is an error that names the variables to check: without it, one connects."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    def problem() -> str:
        environ = {name: os.environ[name] for name in (variable,) if name in os.environ}
        once = http.Http(read(environ), http.Limits(attempts=1))
        with once as client, pytest.raises(http.RemoteError) as caught:
            client.page("http://127.0.0.1:9/simple/", "*/*")
        return str(caught.value)

    monkeypatch.setenv(variable, value)
    message = problem()
    assert message.startswith(words)
    assert "secret" not in message
    assert variable in message.partition(" Check ")[2]
    monkeypatch.delenv(variable)
    assert "Connection refused" in problem()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"csrc/CMakeLists.txt": "project(p LANGUAGES CXX)"}, False),
        ({"csrc/CMakeLists.txt": "enable_language(CUDA)"}, True),
        ({"csrc/CMakeLists.txt": "", "csrc/cmake/gpu.cmake": "find_package(CUDAToolkit)"}, True),
        ({"csrc/CMakeLists.txt": "", "csrc/build/x.cmake": "CUDA", "csrc/.venv/y.cmake": "CUDA"}, False),
        ({"csrc/CMakeLists.txt": "", "csrc/env/pyvenv.cfg": "", "csrc/env/lib/z.cmake": "CUDA"}, False),
        ({}, False),
    ],
)
def test_cuda_headers_are_requested(tmp_path: Path, files: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    """CUDA headers are fetched if the project's CMake files mention CUDA; those in environments do not count."""
    disk.write(tmp_path, files)
    config = Config(root=tmp_path, package="p", package_dir=tmp_path, source=tmp_path / "csrc")
    assert nvidia.uses_cuda(config) is expected


def test_commands_are_shown_without_passwords() -> None:
    """A command line, or a changed variable, that holds an address with credentials is shown without them."""
    shown = process.command_line(["uv", "--index", "https://u:p@x/simple"], {"UV_INDEX": "https://a:b@x/ https://c@y/"})
    assert shown == "env UV_INDEX='https://****@x/ https://****@y/' uv --index https://****@x/simple"
