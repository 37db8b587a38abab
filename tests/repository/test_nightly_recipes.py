"""Every recipe of docs/nightly.md, run on real nights: it fires on a bad one, and on no other.

fairmfu itself runs once for each night. What it printed, wrote and exited with is replayed to the
recipes, of which each is run by the shell, as cron, systemd, Slurm and GitHub do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.reports.nightly import nightly as module
from tests.repository.test_github_action import GH, Runner, program
from tests.repository.test_nightly_docs import RECIPES, cron_lines, example, units
from tests.support.nights import Change, Plan, write_night

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
PLAN = Plan(seed=1, noise=0.003, outliers=0, changes={0: (Change(night=13, factor=0.9),)})


@dataclass(frozen=True)
class Told:
    """A night as fairmfu ended it. folder: of its reports; issues: of its findings."""

    code: int
    said: str
    folder: Path
    issues: Path

    @property
    def first(self) -> str:
        """First words of the report."""
        return str(json.loads((self.folder / "summary.json").read_text())["says"])[:30]


def crash(logs: Path) -> None:
    log, _ = write_night(logs, 13, PLAN, only=(0, 1))
    lines = log.read_text().splitlines()
    steps = [n for n, line in enumerate(lines) if "step:" in line]
    text = [*lines[: steps[12]], "Traceback (most recent call last):", OOM]
    log.write_text("\n".join(text) + "\n")


def regress(logs: Path) -> None:
    for night in (13, 14, 15):
        write_night(logs, night, PLAN, only=(0, 1))


NIGHTS: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "good": (lambda logs: write_night(logs, 12, PLAN, only=(0, 1)), 0, ""),
    "crash": (crash, 5, "job-failed"),
    "missing": (lambda logs: write_night(logs, 12, PLAN, only=(1,)), 5, "job-missing"),
    "regression": (regress, 3, "regression"),
}
"""Logs of the night, its exit code, and its first finding."""


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Each of NIGHTS, after the same night that read eleven good ones."""
    work, before = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("before") / "work"
    words = ["nightly", "--config", str(work / "fairmfu.toml"), "--store", str(work / "store")]
    for night in range(1, 12):
        write_night(work / "logs", night, PLAN, only=(0, 1))
    toml = 'sources = ["logs"]\nout = "out"\nissue_dir = "issues"\n'
    (work / "fairmfu.toml").write_text(toml)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "full_page", lambda *_: "runs")
        patch.setattr(module.night_outputs, "svgs", lambda _: {})
        patch.setattr(module.night_html, "pages", lambda _: ("now", "kept"))
        assert CliRunner().invoke(main, words).exit_code == 0
        shutil.copytree(work, before)
        for name, (tonight, _, _) in NIGHTS.items():
            shutil.rmtree(work)
            shutil.copytree(before, work)
            tonight(work / "logs")
            done = CliRunner().invoke(main, words)
            folder = Path(shutil.copytree(work, tmp_path_factory.mktemp(name) / "night"))
            found[name] = Told(done.exit_code, done.output, folder / "out", folder / "issues")
    return found


@pytest.fixture(params=NIGHTS)
def told(request: pytest.FixtureRequest, nights: dict[str, Told]) -> Told:
    return nights[request.param]


@pytest.fixture
def programs(told: Told, tmp_path: Path) -> Path:
    """A folder with a `fairmfu` that replays the night, and a `mail` that keeps what it is sent."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "said").write_text(told.said)
    replay = f'#!/bin/sh\ncat "{folder}/said"\n[ -z "$OUT" ] || cp -r "{told.folder}/." "$OUT"\n'
    program(folder / "fairmfu", f"{replay}exit {told.code}\n")
    program(folder / "mail", f'#!/bin/sh\n{{ echo "$*"; cat; }} > "{folder}/mailed"\n')
    status = f'cat "{folder}/said"; exit 3'  # of a failed unit
    program(folder / "systemctl", f"#!/bin/sh\n{status}\n")
    return folder


SH: Final = ("/bin/sh", "-c")
BASH: Final = ("/bin/bash", "-eo", "pipefail", "-c")
"""Shells of a recipe, and of a step with `shell: bash`."""


def run(command: str, programs: Path, shell: tuple[str, ...] = SH, **more: str) -> tuple[int, str]:
    """Exit code and output of a command of a recipe."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("FAIRMFU")}
    path = f"{programs}{os.pathsep}{here['PATH']}"
    done = subprocess.run(  # noqa: S603 - constants
        [*shell, command],
        env=here | {"PATH": path} | more,
        capture_output=True,
        text=True,
        check=False,
        cwd=programs,
    )
    return done.returncode, done.stdout


def fires(told: Told) -> bool:
    return told.code != 0


def test_each_night_is_what_it_is_called(nights: dict[str, Told]) -> None:
    for name, (_, code, finding) in NIGHTS.items():
        found = json.loads((nights[name].folder / "summary.json").read_text())["findings"]
        assert nights[name].code == code, nights[name].said
        assert found[0]["id"] == (finding or "all-well")
        for key in ("id", "severity", "series", "since", "evidence"):
            assert not finding or found[0][key], (name, key)


def test_junit_has_an_error_for_a_failed_or_missing_job(nights: dict[str, Told]) -> None:
    tags = {"crash": "error", "missing": "error", "regression": "failure"}
    for name, told in nights.items():
        root = ET.parse(told.folder / "junit.xml").getroot()  # noqa: S314 - ours
        cases = {case.get("name"): case for case in root.iter("testcase")}
        bad = [case for case in cases.values() if case.find("error") is not None]
        bad += [case for case in cases.values() if case.find("failure") is not None]
        assert len(bad) == (name in tags)
        for case in bad:
            (found,) = case.findall(tags[name])
            assert found.get("type") == NIGHTS[name][2]
            assert "steady" not in case.findtext("system-out")


def test_cron_mails_the_night(told: Told, programs: Path) -> None:
    ((_, command),) = cron_lines("crontab")
    _, mailed = run(command, programs)  # cron mails all output
    assert (told.first in mailed) is fires(told)
    assert bool(mailed) is fires(told)


def test_systemd_sends_an_alert(told: Told, programs: Path) -> None:
    nightly, alert = (units()[f"fairmfu-{name}.service"] for name in ("nightly", "alert"))
    assert "SuccessExitStatus" not in nightly["Service"]
    assert nightly["Unit"]["OnFailure"] == "fairmfu-alert.service"
    code, _ = run(nightly["Service"]["ExecStart"].rpartition("/")[2], programs)
    assert code == told.code
    if code:
        run(alert["Service"]["ExecStart"], programs)
    mailed = programs / "mailed"
    assert mailed.exists() is fires(told)
    if mailed.exists():
        assert "fairmfu nightly perf@example.org\n" in mailed.read_text()
        assert told.first in mailed.read_text()


@pytest.mark.parametrize("name", ["nightly.sbatch", "scrontab"])
def test_slurm_mails_a_job_that_fails(name: str, told: Told, programs: Path) -> None:
    text = example(name)
    assert re.search(r"^#S\w+ --mail-type=FAIL$", text, re.MULTILINE)
    if name == "scrontab":
        ((_, text),) = cron_lines(name)
    code, said = run(text.replace("/usr/local/bin/", ""), programs)
    assert code == told.code
    assert told.first in said


def test_the_workflow_fails_comments_and_shows(told: Told, programs: Path) -> None:
    steps = {
        step["name"]: step["run"]
        for step in yaml.safe_load(example("github-nightly.yml"))["jobs"]["nightly"]["steps"]
        if "run" in step
    }
    out, output, shown = (programs / name for name in ("out", "output", "shown"))
    out.mkdir()
    program(programs / "gh", f'#!/bin/sh\necho "$*" > "{programs}/called"\n')
    names = {"OUT": str(out), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(shown)}
    code, _ = run(steps["Nightly"], programs, BASH, **names)
    assert code == told.code
    assert output.read_text() == f"code={code}\n"
    for name in ("Summary", "Comment"):
        assert run(steps[name], programs, PULL="url", **names)[0] == 0
    assert told.first in shown.read_text().replace("*", "")
    assert f"pr comment url --body-file {out}/summary.md" in (programs / "called").read_text()
    assert (out / "junit.xml").exists()


def test_the_action_fails_and_comments(told: Told, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    shutil.copytree(programs, tmp_path / "bin")
    program(tmp_path / "bin" / "gh", GH)
    runner = Runner(tmp_path)
    text = f'#!/bin/sh\nmkdir -p reports; cp -r "{told.folder}/." reports; exit {told.code}\n'
    program(tmp_path / "bin" / "fairmfu", text)
    assert runner.run(out="reports") == told.code
    assert told.first in runner.comments["1"].replace("*", "")
    assert ("::error::" in runner.said["Verdict"]) is fires(told)


def test_jq_prints_what_made_the_night_fail(told: Told, programs: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("no jq here")
    shutil.copy(told.folder / "summary.json", programs)
    says, fails, slower = (run(recipe, programs) for recipe in RECIPES)
    assert {says[0], fails[0], slower[0]} == {0}
    assert (told.first in says[1]) is fires(told)
    assert bool(fails[1]) is fires(told)
    assert bool(slower[1]) is (told.code == 3)


def test_each_finding_is_filed_once(told: Told, programs: Path) -> None:
    shutil.copytree(told.issues, programs / "issues")
    script = example("file-issues.sh").replace("/srv/perf", str(programs))
    filed, left = programs / "filed", programs / "issues"
    program(programs / "gh", "#!/bin/sh\nexit 1\n")
    assert (run(script, programs)[0] == 1) is fires(told)
    assert len(list(left.iterdir())) == fires(told)  # to be tried again
    keep = f'printf "%s\\n" "$*" >> "{filed}"; cat "$8" >> "{filed}"'
    program(programs / "gh", f"#!/bin/sh\n{keep}\n")
    for _ in range(2):
        assert run(script, programs)[0] == 0
    assert list(left.iterdir()) == []
    assert filed.exists() is fires(told)
    if filed.exists():
        form = r"^issue create --repo OWNER/REPO --title (.*) --body-file "
        (title,) = re.findall(form, filed.read_text(), re.MULTILINE)
        assert "\\" not in title
        assert f"# {title}" in filed.read_text().replace("\\", "")
        assert "## Evidence" in filed.read_text()
