"""The GitHub Action: its steps run by bash, as a runner does, with a `gh` that keeps comments."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.folders import ROOT
from tests.support.served_commands import served_program

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
EXAMPLE = yaml.safe_load((ROOT / "docs/examples/github-action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
LOGS = ROOT / "sample_logs" / "synthetic"
TITAN = LOGS / "torchtitan" / "llama3-8b-8xh100-torchtitan.log"
XTUNER = LOGS / "xtuner" / "llama3-8b-8xh100-xtuner.log"

GH = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path

if os.environ.get("FORK"):
    sys.exit("HTTP 403: Resource not accessible by integration")
kept = Path(os.environ["COMMENTS"])
comments = json.loads(kept.read_text()) if kept.exists() else {{}}
words = sys.argv[1:]
assert words.pop(0) == "api"
assert os.environ["GH_TOKEN"] and os.environ["GH_HOST"] == "github.com"
me = os.environ.get("GH_LOGIN", "github-actions[bot]")
if words[0] == "graphql":
    assert words[1:] == ["-f", "query={{viewer{{login}}}}", "--jq", ".data.viewer.login"]
    sys.exit("HTTP 403") if os.environ.get("NO_VIEWER") else print(me)
    sys.exit()
if words[0] == "--paginate":
    assert words[1] == "repos/o/r/issues/7/comments"
    ours = ".user.login == env.AUTHOR and (.body | startswith(env.MARKER))"
    assert words[2:] == ["--jq", f".[] | select({{ours}}) | .id"]
    for number, (login, body) in comments.items():
        if login == os.environ["AUTHOR"] and body.startswith(os.environ["MARKER"]):
            print(number)
    sys.exit()
method, where = words[1], words[2]
assert words[0] == "--method" and words[3] == "-F" and words[5:] == ["--jq", ".html_url"]
body = Path(words[4].removeprefix("body=@")).read_text()
if method == "PATCH":
    number = where.removeprefix("repos/o/r/issues/comments/")
    assert comments[number][0] == me
else:
    assert (method, where) == ("POST", "repos/o/r/issues/7/comments")
    number = str(len(comments) + 1)
comments[number] = [me, body]
kept.write_text(json.dumps(comments))
print(f"https://github.com/o/r/pull/7#issuecomment-{{number}}")
"""


@dataclass
class Runner:
    """A machine that runs the action: what expressions are there, steps do not see."""

    folder: Path
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def run(self, **inputs: str) -> int:
        """All steps, as GitHub does; the exit code of the first that fails."""
        given = {n: about.get("default", "") for n, about in ACTION["inputs"].items()}
        given |= {"pull-request": "7", "token": "secret", "install": ""}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        for name, step in STEPS.items():
            if self._wanted(step.get("if"), given):
                code = self._step(name, step, given)
                if code:
                    return code
        return 0

    def _wanted(self, condition: str | None, given: dict[str, str]) -> bool:
        if condition is None:
            return True
        parts = condition.removeprefix("${{").removesuffix("}}").strip().split(" && ")
        found = [re.fullmatch(r"(\S+) (==|!=) '(.*)'", part) for part in parts]
        sides = [(self._value(m[1], given) == m[3]) == (m[2] == "==") for m in found if m]
        assert len(sides) == len(parts)
        return all(sides)

    def _value(self, expression: str, given: dict[str, str]) -> str:
        kind, *path = expression.split(".")
        if kind == "inputs":
            return given[path[0]]
        assert kind == "steps"
        return self.outputs.get(path[0], {}).get(path[2], "")

    def _filled(self, text: str, given: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda m: self._value(m[1], given), text)

    def _step(self, name: str, step: dict[str, Any], given: dict[str, str]) -> int:
        output = self.folder / "output"
        output.write_text("")
        mine = {n: self._filled(value, given) for n, value in step.get("env", {}).items()}
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(  # noqa: S603 - constants
            [shutil.which("bash") or "", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.folder,
            env=self._environment(output) | mine,
            capture_output=True,
            check=False,
        )
        self.said[name] = (done.stdout + b"\n" * bool(done.stderr) + done.stderr).decode()
        rows = (line.partition("=") for line in output.read_text().splitlines())
        self.outputs[step.get("id", name)] = {key: value for key, _, value in rows}
        return done.returncode

    def _environment(self, output: Path) -> dict[str, str]:
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("FAIRMFU", "GITHUB"))}
        path = os.pathsep.join([str(self.folder / "bin"), clean["PATH"]])
        return clean | {
            "PATH": path,
            "COMMENTS": str(self.folder / "comments.json"),
            "GITHUB_ACTION_PATH": "/action",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_PATH": str(self.folder / "path"),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_STEP_SUMMARY": str(self.folder / "step-summary.md"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "POLARS_MAX_THREADS": "1",
        }

    @property
    def comments(self) -> dict[str, str]:
        kept = self.folder / "comments.json"
        read = json.loads(kept.read_text()) if kept.exists() else {}
        return {number: body for number, (_, body) in read.items()}


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    """The text of a program that has this process run the commands of fairmfu."""
    with tempfile.TemporaryDirectory() as folder, served_program(Path(folder)) as text:
        yield text


@pytest.fixture
def runner(tmp_path: Path, ours: str) -> Runner:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    for name in ("bin", "temp"):
        (tmp_path / name).mkdir()
    program(tmp_path / "bin" / "gh", GH)
    program(tmp_path / "bin" / "fairmfu", ours)
    return Runner(tmp_path)


def nightly(runner: Runner, code: int, summary: str = "# A night\n") -> None:
    """A `fairmfu` that ends so, and tells what it was called with."""
    text = f"""#!/bin/sh
echo "$*" > called
mkdir -p reports && printf '%s' "$SUMMARY_TEXT" > reports/summary.md
exit {code}
"""
    program(runner.folder / "bin" / "fairmfu", text.replace('"$SUMMARY_TEXT"', f"'{summary}'"))


# -- what it says of itself --------------------------------------------------------------------


def test_no_input_gets_into_a_script_but_by_its_environment() -> None:
    for step in STEPS.values():
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]


def test_what_it_refers_to_is_there() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    ids = {step["id"] for step in STEPS.values() if "id" in step}
    assert set(re.findall(r"steps\.(\w+)\.", text)) <= ids
    for name, about in ACTION["outputs"].items():
        found = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.([\w-]+) \}\}", about["value"])
        assert found is not None
        assert found[2] == name
        (script,) = (one["run"] for one in STEPS.values() if one.get("id") == found[1])
        assert f'echo "{name}=' in script


def test_the_example_gives_inputs_that_there_are() -> None:
    (step,) = (s for s in EXAMPLE["jobs"]["speed"]["steps"] if "fairmfu@" in s.get("uses", ""))
    assert set(step["with"]) <= set(ACTION["inputs"])


def test_the_examples_and_the_page_have_the_least_permissions() -> None:
    nightly = yaml.safe_load((ROOT / "docs/examples/github-nightly.yml").read_text("utf-8"))
    page = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| `([\w-]+): (\w+)` \|", page, re.MULTILINE)
    assert dict(stated) == {"contents": "read", "pull-requests": "write"}
    for workflow in (EXAMPLE, nightly):
        assert workflow["permissions"] == dict(stated)
        assert "pull_request_target" not in workflow[True]  # `on` is true to YAML 1.1
        assert not any("permissions" in job for job in workflow["jobs"].values())
    (checkout,) = (s for s in EXAMPLE["jobs"]["speed"]["steps"] if "checkout" in s.get("uses", ""))
    assert checkout["with"] == {"persist-credentials": False}
    assert "pull-requests: write, and no other" in ACTION["inputs"]["token"]["description"]


def test_the_page_names_every_input_and_output() -> None:
    page = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
    for name in (*ACTION["inputs"], *ACTION["outputs"]):
        assert f"`{name}`" in page


def test_its_scripts_are_bash() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    for step in STEPS.values():
        subprocess.run([bash, "-n"], input=step["run"], text=True, check=True)  # noqa: S603


# -- its steps ---------------------------------------------------------------------------------


def test_two_logs_are_compared_in_one_comment(runner: Runner) -> None:
    """First by a process of fairmfu, as everywhere but in these tests."""
    started = f'exec "{sys.executable}" -c "from fairmfu.cli import main; main()" "$@"'
    served = (runner.folder / "bin" / "fairmfu").read_text()
    program(runner.folder / "bin" / "fairmfu", f"#!/bin/sh\n{started}\n")
    inputs = {"command": "compare", "logs": f"\n{TITAN}\n{XTUNER}\n", "facts": "gpus=8\n"}
    assert runner.run(**inputs) == 0, runner.said
    summary = (runner.folder / "fairmfu-report" / "summary.md").read_text()
    assert "llama3-8b-8xh100-torchtitan" in summary
    assert "| " in summary
    assert runner.comments == {"1": f"<!-- fairmfu: fairmfu -->\n{summary}"}
    assert (runner.folder / "step-summary.md").read_text() == summary
    assert runner.outputs["run"] == {"exit-code": "0", "summary": "fairmfu-report/summary.md"}
    assert runner.outputs["comment"]["comment-url"].endswith("#issuecomment-1")
    program(runner.folder / "bin" / "fairmfu", served)
    assert runner.run(**(inputs | {"logs": str(TITAN)})) == 0, runner.said
    assert set(runner.comments) == {"1"}
    assert "8xh100-xtuner" not in runner.comments["1"]


SLOWER = """#!/bin/sh
case "$*" in
  ingest*) ;;
  *--fail-below*) echo "### head is slower"; exit "$STUB" ;;
esac
"""


def test_a_head_is_compared_with_its_base_direction_first(runner: Runner) -> None:
    inputs = {"command": "compare", "logs": f"{TITAN}\n{XTUNER}", "fail_below": "2%"}
    assert runner.run(**inputs) == 0, runner.said
    first, said = runner.comments["1"].splitlines()[1:4:2]
    names = "llama3-8b-8xh100-xtuner is as fast as llama3-8b-8xh100-torchtitan"
    assert re.fullmatch(rf"### \N{{MEDIUM WHITE CIRCLE}} {names}, within 0\.\d+ %", first)
    assert said.endswith("; 2 % is allowed. Exit code 0.")
    short = runner.folder / "short.log"
    short.write_text("".join(XTUNER.read_text().splitlines(keepends=True)[:-16]))
    assert runner.run(**(inputs | {"logs": f"{TITAN}\n{short}"})) == 6, runner.said
    assert "Not decided without an interval" in runner.comments["1"]
    assert "::error::Not decided" in runner.said["Verdict"]


@pytest.mark.parametrize(
    ("code", "fails", "ends"),
    [(0, "true", 0), (3, "true", 3), (3, "false", 0), (5, "false", 5), (6, "false", 6)],
)
def test_a_gate_ends_the_job_and_comments(code: int, fails: str, ends: int, runner: Runner) -> None:
    program(runner.folder / "bin" / "fairmfu", SLOWER.replace('"$STUB"', str(code)))
    inputs = {"command": "compare", "logs": "a.log\nb.log", "fail_below": "2%"}
    assert runner.run(**inputs, fail_on_regression=fails) == ends
    assert "### head is slower" in runner.comments["1"]
    assert runner.outputs["run"]["exit-code"] == str(code)


def test_a_gate_needs_two_logs_that_were_read(runner: Runner) -> None:
    inputs = {"command": "compare", "fail_below": "2%"}
    assert runner.run(**inputs, logs=str(TITAN)) == 2
    assert runner.run(**inputs, logs=f"{TITAN}\nno-such.log") == 1
    assert runner.run(command="nightly", fail_below="2%") == 2


def test_logs_that_cannot_be_read_are_a_failure_and_no_comment(runner: Runner) -> None:
    assert runner.run(command="compare", logs="no-such.log") == 1
    assert "no-such.log" in runner.said["Run"]
    assert runner.comments == {}
    assert runner.outputs["run"] == {"exit-code": "1"}


def test_a_log_that_cannot_be_read_beside_one_that_can_is_a_warning(runner: Runner) -> None:
    assert runner.run(command="compare", logs=f"{TITAN}\nno-such.log") == 0, runner.said
    assert "::warning::Some logs could not be read" in runner.said["Verdict"]
    assert set(runner.comments) == {"1"}
    assert "Not read, and not compared:\n\n    no-such.log: no such file" in runner.comments["1"]


@pytest.mark.parametrize(
    ("command", "given"), [("nightly", {"facts": "gpus=8"}), ("compare", {"config": "a.toml"})]
)
def test_an_input_of_the_other_command_is_an_error(
    command: str, given: dict[str, str], runner: Runner
) -> None:
    assert runner.run(command=command, logs=str(TITAN), **given) == 2
    assert f"::error::{next(iter(given))}" in runner.said["Run"]


@pytest.mark.parametrize(
    ("code", "fails", "ends"),
    [
        (0, "true", 0),
        (3, "true", 3),
        (3, "false", 0),
        (4, "true", 0),
        (5, "true", 5),
        (5, "false", 5),
        (1, "true", 1),
    ],
)
def test_a_night_ends_the_job_as_is_wanted(
    code: int, fails: str, ends: int, runner: Runner
) -> None:
    nightly(runner, code)
    assert runner.run(out="reports", fail_on_regression=fails) == ends
    assert runner.outputs["run"]["exit-code"] == str(code)
    assert ("1" in runner.comments) is (code != 1)
    assert ("::warning::" in runner.said["Verdict"]) is (code != ends)


def test_a_night_takes_what_is_given(runner: Runner) -> None:
    nightly(runner, 0)
    logs = "/data/a b.log\n/data/*.log\n"
    assert runner.run(out="reports", config="a b.toml", store="s3://b/perf", logs=logs) == 0
    called = (runner.folder / "called").read_text()
    assert called == (
        "nightly --out reports --config a b.toml --store s3://b/perf -- /data/a b.log /data/*.log\n"
    )
    assert runner.run(out="reports") == 0
    assert (runner.folder / "called").read_text() == "nightly --out reports --\n"


def test_comments_of_two_workflows_are_two(runner: Runner) -> None:
    nightly(runner, 0)
    for key in ("one", "two", "one"):
        assert runner.run(out="reports", comment_key=key) == 0
    assert set(runner.comments) == {"1", "2"}


@pytest.mark.parametrize("inputs", [{"comment": "false"}, {"pull_request": ""}])
def test_without_a_pull_request_or_a_wish_nothing_is_commented(
    inputs: dict[str, str], runner: Runner
) -> None:
    nightly(runner, 0)
    assert runner.run(out="reports", **inputs) == 0
    assert runner.comments == {}
    assert (runner.folder / "step-summary.md").read_text() == "# A night\n"


def test_a_fork_gets_a_warning(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly(runner, 0)
    monkeypatch.setenv("FORK", "1")
    assert runner.run(out="reports") == 0
    assert "::warning::No comment" in runner.said["Comment"]


def test_a_long_summary_is_cut_at_a_line(runner: Runner) -> None:
    nightly(runner, 0, "größe\n" * 20_000)
    assert runner.run(out="reports") == 0, runner.said
    body = runner.comments["1"]
    assert len(body) < 65_536
    assert set(body.splitlines()[1:-2]) == {"größe"}
    assert body.endswith("\nThe summary of the job has more.\n")


PYTHON3 = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > pip-called\\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""


@pytest.mark.parametrize(
    ("install", "what"), [("this", "/action"), ("fairmfu @ file:///a b", "fairmfu @ file:///a b")]
)
def test_it_installs_into_an_environment_of_its_own(
    install: str, what: str, runner: Runner
) -> None:
    nightly(runner, 0)
    program(runner.folder / "bin" / "python3", PYTHON3)
    assert runner.run(out="reports", install=install) == 0, runner.said
    called = (runner.folder / "pip-called").read_text()
    assert called == f"install --quiet --disable-pip-version-check {what}\n"
    assert (runner.folder / "path").read_text() == f"{runner.folder}/temp/fairmfu/bin\n"


def test_a_command_that_is_none_is_told(runner: Runner) -> None:
    assert runner.run(command="report") == 2
    assert "::error::" in runner.said["Run"]


# -- what others chose -------------------------------------------------------------------------

FORGED = """::error::a
::error::b <!-- fairmfu: fairmfu -->`|@team ##[error]c
```
Error: ```
Error: <!-- fairmfu: fairmfu -->
::set-output name=x::y
\r::warning::d
2 read, # x"""
"""A name that tries to be a command, a mention, a marker, a cell and the end of a fence."""
OTHERS = st.text() | st.lists(
    st.sampled_from(
        ["::error::x", "##[error]x", "Error: ", "```", "<!-- x -->", "\n", "\r", " ", "a"]
    )
).map("".join)
SAYS = """#!/bin/sh
case "$1" in
  compare) cat said; cat said >&2 ;;
  *) cat said; cat said >&2; mkdir -p fairmfu-report; : > fairmfu-report/summary.md; exit "$CODE" ;;
esac
"""


def commands(text: str) -> list[str]:
    """The lines of a step's output that GitHub obeys: it splits at a carriage return, too."""
    lines = re.split(r"[\r\n]", text)
    return [line for line in lines if line.strip().startswith("::") or "##[" in line]


def is_quoted(summary: str) -> bool:
    """True if the list of unread logs is one block of code that nothing ends."""
    listed = summary.partition("Not read, and not compared:\n\n")[2]
    tokens = MarkdownIt("commonmark").parse(f"x\n\n{listed}")
    return [token.type for token in tokens[3:]] in ([], ["code_block"])


def test_a_name_is_no_command_no_markup_and_no_marker(runner: Runner) -> None:
    logs = runner.folder / "logs"
    logs.mkdir()
    shutil.copy(TITAN, logs / f"{FORGED.replace('/', '')}.log")
    (runner.folder / f"{FORGED} no log").write_text("hello")
    shutil.copy(XTUNER, logs / "b.log")
    inputs = {"command": "compare", "logs": f"{logs}\n{runner.folder}/*no log"}
    assert runner.run(**inputs) == 0, runner.said
    assert commands(runner.said["Run"]) == []
    assert ": :error: :b" in runner.said["Run"]
    assert len(commands(runner.said["Verdict"])) == 1
    body = runner.comments["1"]
    assert body.count("<!--") == body.partition("Not read")[2].count("<!--") + 1
    assert "unknown format" in body
    assert is_quoted(body)
    assert set(runner.outputs["run"]) == {"exit-code", "summary"}
    html = MarkdownIt("commonmark").enable("table").render(body.partition("\n")[2])
    assert set(re.findall(r"<(\w+)", html)) <= {
        *("h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"),
        *("pre", "code"),
    }


@pytest.mark.parametrize("command", ["compare", "nightly"])
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@example(text="Error: a\n::error::x\rError: ```", code=4)
@given(text=OTHERS, code=st.sampled_from([0, 4]))
def test_no_output_is_a_command(command: str, text: str, code: int, runner: Runner) -> None:
    program(runner.folder / "bin" / "fairmfu", SAYS.replace('"$CODE"', str(code)))
    (runner.folder / "said").write_text(text, "utf-8", "replace", newline="")
    assert runner.run(command=command, logs="x", comment="false") == 0, runner.said
    assert commands(runner.said["Run"]) == []
    summary = (runner.folder / "fairmfu-report" / "summary.md").read_bytes().decode()
    if command == "compare":
        assert is_quoted(summary.removeprefix(text))


def test_the_nightly_workflow_takes_no_name_for_a_command(runner: Runner) -> None:
    workflow = yaml.safe_load((ROOT / "docs/examples/github-nightly.yml").read_text("utf-8"))
    step = next(s for s in workflow["jobs"]["nightly"]["steps"] if s["name"] == "Nightly")
    assert step["shell"] == "bash"
    program(runner.folder / "bin" / "fairmfu", SAYS.replace('"$CODE"', "3"))
    (runner.folder / "said").write_text(FORGED, newline="")
    assert runner._step("Nightly", step, {}) == 3
    assert commands(runner.said["Nightly"]) == []


@pytest.mark.parametrize("viewer", ["", "1"])
def test_a_marker_of_others_is_not_ours(
    viewer: str, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    nightly(runner, 0)
    forged = {"1": ["mallory", "<!-- fairmfu: fairmfu -->\nmine"], "2": ["github-actions", "<!--"]}
    (runner.folder / "comments.json").write_text(json.dumps(forged))
    monkeypatch.setenv("NO_VIEWER", viewer)
    for _ in range(2):
        assert runner.run(out="reports") == 0, runner.said
    assert list(runner.comments) == ["1", "2", "3"]
    assert runner.comments["1"].endswith("mine")
    monkeypatch.setenv("NO_VIEWER", "")
    monkeypatch.setenv("GH_LOGIN", "our-app[bot]")
    for _ in range(2):
        assert runner.run(out="reports") == 0, runner.said
    assert list(runner.comments) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    "inputs", [{"comment_key": "x --> y"}, {"comment_key": "a\nb"}, {"out": "a\nexit-code=0"}]
)
def test_an_input_that_would_end_its_line_or_comment_is_an_error(
    inputs: dict[str, str], runner: Runner
) -> None:
    nightly(runner, 0)
    assert runner.run(**inputs) == 2
    assert len(commands(runner.said["Run"])) == 1
