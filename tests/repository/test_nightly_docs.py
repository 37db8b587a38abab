"""docs/nightly.md and its examples: shown as they are, and each checked by what would run it."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fairmfu.ingest.facts.project_config import load_config
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.nightly.night_outputs import summary
from tests.support.folders import ROOT
from tests.support.told_nights import a_night, crashed, regression

DOCS = ROOT / "docs"
EXAMPLES = sorted(
    path for path in (DOCS / "examples").iterdir() if path.is_file() and path.suffix != ".py"
)  # no notebooks
PAGE = (DOCS / "nightly.md").read_text(encoding="utf-8")
CRON_RANGES = {"minute": 59, "hour": 23, "day": 31, "month": 12, "weekday": 7}


def example(name: str) -> str:
    return (DOCS / "examples" / name).read_text(encoding="utf-8")


def indented(text: str) -> str:
    """As a block of Markdown."""
    lines = text.splitlines(keepends=True)
    return "".join(f"    {line}" if line.strip() else line for line in lines)


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A folder with a `fairmfu` that writes its arguments and exits with $STUB."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "fairmfu"
    program.write_text('#!/bin/sh\necho "fairmfu $*, config $FAIRMFU_CONFIG"\nexit "$STUB"\n')
    program.chmod(0o755)
    return folder


def shell(command: list[str], stub: Path, code: int, **more: str) -> tuple[int, str]:
    """Exit code and standard output of a command that finds the stub."""
    path = f"{stub}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "STUB": str(code), **more}
    done = subprocess.run(  # noqa: S603 - constants
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_page_shows_the_example_as_it_is(path: Path) -> None:
    assert indented(path.read_text(encoding="utf-8")) in PAGE


def test_its_first_configuration_is_read(tmp_path: Path) -> None:
    block = PAGE.split("    # /srv/perf/fairmfu.toml\n")[1].split("\n\n")[0]
    path = tmp_path / "fairmfu.toml"
    path.write_text("\n".join(line.strip() for line in block.splitlines()))
    config = load_config(path, METRICS.names())
    assert config.sources == (Path("/data/logs"),)
    assert (config.store, config.out) == (tmp_path / "store", tmp_path / "nightly")


def test_the_page_names_every_exit_code_of_the_command() -> None:
    told = set(re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE))
    assert told == {"0", "1", "2", "3", "4", "5"}


# -- cron ------------------------------------------------------------------------------------


def cron_lines(name: str) -> list[tuple[list[str], str]]:
    """The five fields and the command of each entry; variables and comments are none."""
    rows = [line for line in example(name).splitlines() if line and line[0] != "#"]
    entries = [line for line in rows if not re.match(r"\w+=", line)]
    return [(line.split(None, 5)[:5], line.split(None, 5)[5]) for line in entries]


@pytest.mark.parametrize("name", ["crontab", "scrontab"])
def test_a_crontab_has_five_fields_and_a_command(name: str) -> None:
    ((fields, command),) = cron_lines(name)
    for field, largest in zip(fields, CRON_RANGES.values(), strict=True):
        assert field == "*" or 0 <= int(field) <= largest
    assert "%" not in command  # a new line to cron
    assert "fairmfu nightly" in command


@pytest.mark.parametrize("code", [0, 3, 4, 5, 1])
def test_cron_mails_what_was_said_if_a_night_does_not_end_well(code: int, stub: Path) -> None:
    ((_, command),) = cron_lines("crontab")
    config = "/srv/perf/fairmfu.toml"
    assert f"FAIRMFU_CONFIG={config}\n" in example("crontab")
    _, said = shell(["/bin/sh", "-c", command], stub, code, FAIRMFU_CONFIG=config)
    assert said == (f"fairmfu nightly, config {config}\n" if code else "")


# -- systemd ---------------------------------------------------------------------------------


def units() -> dict[str, configparser.ConfigParser]:
    found = {}
    for path in EXAMPLES:
        if path.suffix in (".service", ".timer"):
            unit = configparser.ConfigParser(interpolation=None)
            unit.optionxform = str  # type: ignore[assignment,method-assign]
            unit.read(path)
            found[path.name] = unit
    return found


def test_the_units_name_one_another() -> None:
    found = units()
    assert set(found) == {
        "fairmfu-nightly.service",
        "fairmfu-nightly.timer",
        "fairmfu-alert.service",
    }
    assert found["fairmfu-nightly.service"]["Unit"]["OnFailure"] == "fairmfu-alert.service"
    assert found["fairmfu-nightly.service"]["Service"]["ExecStart"].endswith("fairmfu nightly")
    for unit in found.values():
        assert unit["Unit"]["Description"]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    for name in units():
        text = example(name).replace("/usr/local/bin/fairmfu", "/bin/true")
        (tmp_path / name).write_text(text)
    names = [str(tmp_path / name) for name in units()]
    done = subprocess.run(  # noqa: S603 - constants
        [analyze, "verify", "--man=no", *names],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "fairmfu" in line]
    assert (done.returncode, ours) == (0, [])
    when = units()["fairmfu-nightly.timer"]["Timer"]["OnCalendar"]
    subprocess.run([analyze, "calendar", when], capture_output=True, check=True)  # noqa: S603


# -- GitHub Actions --------------------------------------------------------------------------


@pytest.fixture
def steps() -> dict[str, dict[str, object]]:
    workflow = yaml.safe_load(example("github-nightly.yml"))
    schedule = workflow[True]["schedule"]  # `on` is true to YAML 1.1
    assert [len(each["cron"].split()) for each in schedule] == [5]
    return {step["name"]: step for step in workflow["jobs"]["nightly"]["steps"]}


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (3, 3), (4, 0), (5, 5), (1, 1)])
def test_a_workflow_fails_on_regressions_and_failures_only(
    code: int, ends: int, steps: dict[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    output = tmp_path / "output"
    script = tmp_path / "step.sh"
    script.write_text(steps["Nightly"]["run"])
    more = {"GITHUB_OUTPUT": str(output), "OUT": "out", "FAIRMFU_CONFIG": "x.toml"}
    command = [bash, "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    ended, said = shell(command, stub, code, **more)
    assert (ended, output.read_text()) == (ends, f"code={code}\n")
    assert said.startswith("fairmfu nightly --out out, config x.toml\n")
    assert ("::warning::" in said) is (code == 4)


def test_a_workflow_shows_no_summary_of_an_earlier_night(
    steps: dict[str, dict[str, str]],
) -> None:
    for name in ("Summary", "Comment"):
        codes = 'contains(fromJSON(\'["0", "3", "4", "5"]\'), steps.nightly.outputs.code)'
        assert codes in steps[name]["if"]
        assert '"$OUT/summary.md"' in steps[name]["run"]
    assert steps["Nightly"]["id"] == "nightly"
    for name in ("Report", "Series as tests"):
        assert steps[name]["if"] == "${{ !cancelled() }}"


# -- jq --------------------------------------------------------------------------------------

RECIPES = re.findall(r"^    (jq .*)$", (DOCS / "nightly-summary.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_of_jq_fires_on_a_bad_night_alone(recipe: str, tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("no jq here")
    said = {}
    for name, night in (("bad", regression(runs=[crashed()])), ("good", a_night())):
        (tmp_path / "summary.json").write_text(json.dumps(summary(night)))
        done = subprocess.run(  # noqa: S603 - constants
            ["/bin/sh", "-c", recipe], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        said[name] = done.stdout
    assert said["good"] == ""
    assert "torchtitan" in said["bad"] or "titan-oom (out of memory)" in said["bad"]
    if "findings" in recipe:
        assert said["bad"].startswith("job-failed\ttitan-oom\tout of memory\t")


# -- Slurm -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 4, 5])
def test_a_batch_job_ends_as_the_nightly_does(code: int, stub: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    script = tmp_path / "nightly.sbatch"
    script.write_text(example("nightly.sbatch").replace("/usr/local/bin/fairmfu", "fairmfu"))
    assert shell([bash, "-n", str(script)], stub, code) == (0, "")
    said = "fairmfu nightly, config /srv/perf/fairmfu.toml\n"
    assert shell([bash, str(script)], stub, code) == (code, said)


@pytest.mark.parametrize(("name", "tag"), [("nightly.sbatch", "#SBATCH"), ("scrontab", "#SCRON")])
def test_options_of_slurm_stand_before_the_command(name: str, tag: str) -> None:
    lines = example(name).splitlines()
    tagged = [place for place, line in enumerate(lines) if line.startswith(tag)]
    first = 1 if name == "nightly.sbatch" else 0
    assert tagged == list(range(first, first + len(tagged)))
    for place in tagged:
        assert re.fullmatch(rf"{tag} --[a-z-]+=[\w:./-]+", lines[place])
