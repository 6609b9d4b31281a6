"""The package as it is given away: what the wheel and the source distribution hold, tried on their own."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"
NOT_OURS = {".git", ".venv", "build", "dist", "runs", "PKG-INFO", "setup.cfg"}
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def tracked() -> list[Path]:
    """The files of the project: those git knows, or, in a source distribution, all there are."""
    if (ROOT / ".git").exists():
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [Path(name) for name in found.split("\0") if name and (ROOT / name).exists()]
    files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    made = re.compile(r"__pycache__|\.egg-info|_cache/|\.hypothesis")
    return [path for path in files if path.parts[0] not in NOT_OURS and not made.search(str(path))]


def build(what: str, source: Path, out: Path) -> Path:
    """Without a network: the tools are there, and nothing else is asked for."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", str(out)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    for path in tracked():
        copy = folder / "source" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_symlink():  # `configs` is one, to a folder
            copy.symlink_to((ROOT / path).readlink())
        else:
            copy.write_bytes((ROOT / path).read_bytes())
    return build("sdist", folder / "source", folder / "sdist")


@pytest.fixture(scope="module")
def unpacked(sdist: Path) -> Path:
    with tarfile.open(sdist) as packed:
        packed.extractall(sdist.parent.parent / "unpacked", filter="data")
    (folder,) = (sdist.parent.parent / "unpacked").iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> Path:
    """Built from the source distribution, as an index's users would."""
    return build("wheel", unpacked, unpacked.parent.parent / "wheel")


@pytest.fixture(scope="module")
def about(wheel: Path) -> Message:
    with ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(packed.read(name).decode())


def test_the_source_distribution_has_every_file_of_the_project(unpacked: Path) -> None:
    assert [str(path) for path in tracked() if not (unpacked / path).exists()] == []
    presets = ROOT / "src" / "spreadout" / "config" / "presets"
    named = sorted(path.relative_to(presets) for path in presets.rglob("*.toml"))
    assert named
    held = unpacked / "configs"  # in an archive a link is a folder of its own
    assert sorted(path.relative_to(held) for path in held.rglob("*.toml")) == named


def test_the_source_distribution_tests_itself(unpacked: Path) -> None:
    """Some of its tests, in it, on its own sources: those that read files beside the package."""
    asked = "links or map or ragged or config_that_ships or published_results"
    chosen = ["tests/core/test_ragged.py", "tests/test_docs.py", "tests/config/test_sound.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", asked, *chosen],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    configs = list((ROOT / "configs").rglob("*.toml"))  # each is a test, of which none may get lost
    assert configs
    assert int(passed[1]) > 20 + len(configs)


def test_the_wheel_works_in_an_empty_folder_without_the_sources(wheel: Path, tmp_path: Path) -> None:
    home, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--target", str(home), str(wheel)], check=True)
    code = """
import sys
from spreadout.cli.main import main
import spreadout
print(spreadout.__file__)
main()
"""
    for words, said in (
        (["presets"], "digits-fedaws"),
        (["run", "digits-fedaws", "rounds=1", "--out", "run"], "P@1"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=empty,
            env={**os.environ, "PYTHONPATH": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        place, _, rest = done.stdout.partition("\n")
        assert Path(place) == home / "spreadout" / "__init__.py"
        assert said in rest
    assert (empty / "run" / "summary.json").is_file()
    assert (home / "bin" / "spreadout").is_file()


def test_the_wheel_has_all_that_the_package_reads_and_none_of_its_tests(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        held = {name for name in packed.namelist() if ".dist-info/" not in name}
    wanted = {str(path.relative_to("src")) for path in tracked() if path.is_relative_to("src/spreadout")}
    assert held == wanted


def test_the_licence_is_named_as_spdx_does_and_comes_along(about: Message, wheel: Path) -> None:
    assert about["License-Expression"] == "Apache-2.0"
    assert about["License-File"] == "LICENSE"
    with ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith("licenses/LICENSE"))
        assert packed.read(name) == (ROOT / "LICENSE").read_bytes()
    assert not [
        c for c in about.get_all("Classifier", []) if c.startswith("License")
    ]  # one or the other


def test_the_page_on_an_index_has_no_link_that_leads_nowhere(about: Message) -> None:
    page = str(about.get_payload())
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link for link in links if link.startswith(f"{REPOSITORY}/")]
    assert len(ours) > 20
    for link in ours:
        kind, tag, path = link.removeprefix(f"{REPOSITORY}/").partition("#")[0].split("/", 2)
        assert tag == f"v{about['Version']}"
        assert (ROOT / path).is_dir() if kind == "tree" else (ROOT / path).is_file()
        assert (kind == "raw") == path.endswith(".png")
    assert len(ours) == len(re.findall(r"\]\((?!https?:|#)[^)]+\)", (ROOT / "README.md").read_text()))


def test_the_address_of_the_repository_is_the_same_everywhere(about: Message) -> None:
    for url in about.get_all("Project-URL", []):
        assert url.partition(", ")[2].startswith(REPOSITORY)
    for path in (ROOT / "SECURITY.md", ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"):
        found = re.findall(r"https://github\.com/\S+?/security", path.read_text())
        assert found
        assert set(found) == {f"{REPOSITORY}/security"}


def test_the_lock_pins_everything_the_package_and_its_extras_ask_for(about: Message) -> None:
    from packaging.markers import default_environment
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(pin.name): next(iter(pin.specifier)) for pin in pins}
    assert all(spec.operator == "==" for spec in pinned.values())
    missing = []
    for text in about.get_all("Requires-Dist", []):
        wanted = Requirement(text)
        extra = re.search(r'extra == "(\w+)"', text)
        if (extra and extra[1] == "fuzz") or canonicalize_name(wanted.name) == "spreadout":
            continue  # `make fuzz` does without it; an extra of extras
        environment = {**default_environment(), "extra": extra[1] if extra else ""}
        if wanted.marker is None or wanted.marker.evaluate(environment):
            pin = pinned.get(canonicalize_name(wanted.name))
            if pin is None or not wanted.specifier.contains(pin.version, prereleases=True):
                missing.append(text)
    assert missing == []


def test_the_image_is_built_from_files_that_are_there() -> None:
    """There need be no engine to see this much: what is copied exists and is not kept from it."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    ]
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert copied
    assert sorted(copied) == sorted(let_in)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", "\n".join(lines), re.MULTILINE)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_can_be_read_and_name_files_that_are_there(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(path.read_text())
    if path.parent.name == "workflows":
        steps = [step for job in read["jobs"].values() for step in job["steps"]]
        assert all(("run" in step) != ("uses" in step) for step in steps)
        for name in re.findall(r"\b(tests/\w+)", path.read_text()):
            assert (ROOT / name).exists(), name
    elif "body" in read:
        assert all({"type", "attributes"} <= set(part) for part in read["body"])
    else:
        assert read["contact_links"]
