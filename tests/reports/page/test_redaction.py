"""What a report must not tell to others is found, and replaced alike wherever it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.schema import FACT_NAMES, TABLES
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.page.redaction import REDACTED, Redaction
from tests.support.folders import ROOT
from tests.support.nights import Plan, write_night

SECRETS = [
    ("hf_AbCdEfGhIjKlMnOpQr12345678", "Using token hf_AbCdEfGhIjKlMnOpQr12345678 of hub"),
    ("ghp_0123456789abcdefghij01234", "clone https://ghp_0123456789abcdefghij01234@h"),
    ("AKIAIOSFODNN7EXAMPLE", "s3 key AKIAIOSFODNN7EXAMPLE"),
    ("sk-proj-abcdefghijklmnop1234", "OPENAI=sk-proj-abcdefghijklmnop1234"),
    ("0a1b2c3d4e5f60718293a4b5c6", "WANDB_API_KEY=0a1b2c3d4e5f60718293a4b5c6"),
    ("s3cr3tpassw0rd", '{"password": "s3cr3tpassw0rd"}'),
    ("tok3n-of-mine", "args: --hf-token tok3n-of-mine --lr 1e-4"),
    ("hunter22", "postgres://mlflow:hunter22@db.example.org/runs"),
    ("correcthorse", "mlflow password=correcthorse"),
    ("0123456789abcdef0123", "--wandb_key 0123456789abcdef0123"),
    ("abcDEF0123456789xyz", "Authorization: Bearer abcDEF0123456789xyz"),
]  # fmt: skip
NAMES = [
    ("grace", "/home/grace/torchtitan/train.py:12: UserWarning"),
    ("grace", r"C:\Users\grace\runs\out.log"),
    ("grace", r"C:\\Users\\grace\\runs\\out.log"),
    ("\u00f6mer", "/home/\u00f6mer/out.log"),
    ("2grace", "/home/2grace/out.log"),
    ("grace", "wandb: Currently logged in as: grace (hopperlab)"),
    ("grace.hopper@navy.example", "mail_user: grace.hopper@navy.example"),
    ("azwus2f200000DQ", "azwus2f200000DQ:8123:8123 [0] NCCL INFO Bootstrap"),
    ("v100x16-2", "v100x16-2: [2026-01-02 03:04:05,678] [INFO] step=10"),
    ("r8i2n3", "  master_addr ..................... r8i2n3"),
    ("gpu7.rack2.internal", "connecting to gpu7.rack2.internal"),
    ("gnode[001-004,007]", "SLURM_JOB_NODELIST=gnode[001-004,007] SLURM_NTASKS=4"),
    ("grace", "SLURM_JOB_USER=grace SLURM_JOB_ID=7"),
    ("devgpu020.snb3.example.com", "  host      : devgpu020.snb3.example.com"),
    ("10.115.79.12", "world_size=64 master_addr=10.115.79.12 port=29500"),
    ("fe80::1ff:fe23:4567:890a", "listening on [fe80::1ff:fe23:4567:890a]:29500"),
]
HARMLESS = [
    "[titan] 2026-12-31 23:40:00,910 - root - INFO - step:  1  loss: 12.00765  tps: 11,061",
    "tokens: 300000000000 token: 12345678.5 pad_token: 128001 token_dropping/dropping_utils.py",
    "a basic tlparse_reports-key of the store",
    "rank0: [2026-01-02 03:04:05,678] localhost:29500 worker-0: [2026-01-02] 127.0.0.1",
    "/srv/titan MASTER_ADDR=localhost 12:34:56 1:2:3 torch 2.4.0 eta: 1 day, 3:04:05",
    "torchtitan version 0.16.4.1, cuDNN 8.9.7.29, NCCL 2.21.5.1",
    "/home/admin/x tokenizer_type=GPT2BPETokenizer password: none api_key: ****",
]


@pytest.mark.parametrize(("name", "text"), [*SECRETS, *NAMES])
def test_what_is_not_for_others_is_replaced(name: str, text: str) -> None:
    said = {"runs": {"a": [text, 1.5, None]}, "elsewhere": f"by <{name}>, and ({name})"}
    told = Redaction(said)
    hidden = told.redact(said)
    assert name not in str(hidden)
    assert hidden["runs"]["a"][1:] == [1.5, None]
    (word,) = set(re.findall(r"<(\S+)>", hidden["elsewhere"]))
    assert hidden["elsewhere"] == f"by <{word}>, and ({word})"
    assert hidden["runs"]["a"][0] == text.replace(name, word)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_names_nobody_stays(text: str) -> None:
    told = Redaction([text])
    assert told.redact(text) == text
    assert str(told) == "hidden: nothing was found"


def test_our_own_words_stay() -> None:
    words = [*(form.name for form in BUILT_IN_FORMATS), *FACT_NAMES, *METRICS, *TABLES]
    assert str(Redaction(words)) == "hidden: nothing was found"


@pytest.mark.parametrize("name", ["runs", "steps", "facts", "bf16", "model", "llama3", "h100"])
def test_a_user_who_is_called_like_a_word_of_ours_is_hidden_in_paths_alone(name: str) -> None:
    said = {name: {f"repeated_{name}": [f"/home/{name}/a.log", name, f"a {name} of 8"]}}
    hidden = Redaction(said).redact(said)
    assert hidden == {name: {f"repeated_{name}": ["/home/user-1/a.log", name, f"a {name} of 8"]}}


def test_two_names_stay_two_and_are_counted() -> None:
    said = [
        "/home/ada/a.log",
        "/home/grace/b.log",
        "/home/ada/c.log",
        "ada1",
        "canada",
        "grace-run",
    ]
    told = Redaction(said)
    assert told.redact(said) == [
        *("/home/user-1/a.log", "/home/user-2/b.log", "/home/user-1/c.log"),
        *("ada1", "canada", "user-2-run"),
    ]
    assert str(told) == "hidden: 2 users"


def test_a_host_is_one_with_its_domain_and_without() -> None:
    said = ["  host      : gpu07.rack2.example.org", "gpu07: out of memory", "gpu08, gpu07x"]
    told = Redaction(said)
    assert told.redact(said) == ["  host      : host-1", "host-1: out of memory", "gpu08, gpu07x"]
    assert str(told) == "hidden: 1 host"


def test_each_node_of_a_list_is_hidden_where_it_stands_alone() -> None:
    said = [
        "SLURM_NODELIST=gnode[001-003,007],login1",
        "worker gnode002 died",
        "gnode007: 9",
        "login1",
    ]
    hidden = Redaction(said).redact(said)
    assert not re.search("gnode|login", " ".join(hidden))
    assert len({re.search(r"host-\d+", text)[0] for text in hidden}) == 4  # type: ignore[index]
    assert Redaction("gnode004").redact("gnode004") == "gnode004"


def test_a_short_name_is_no_word_of_other_texts() -> None:
    said = ["/home/sd/a.log", "sd is a model"]
    assert Redaction(said).redact(said) == ["/home/user-1/a.log", "sd is a model"]


def test_frames_are_told_like_other_texts_and_keep_their_types() -> None:
    rows = {
        "path": ["/home/ada/a", None, "/home/grace/b", "/home/ada/a"],
        "said": [["grace and ada"], [], None, ["nothing"]],
        "of": [{"name": "grace", "steps": 3}] * 4,
        "tgs": [1.5, None, 2.5, 3.5],
    }
    frame = pl.DataFrame(rows)
    hidden = Redaction(frame).redact(frame)
    assert hidden.schema == frame.schema
    assert hidden["path"].to_list() == ["/home/user-1/a", None, "/home/user-2/b", "/home/user-1/a"]
    # a name of three letters is replaced where its form is, and nowhere else
    assert hidden["said"].to_list() == [["user-2 and ada"], [], None, ["nothing"]]
    assert hidden["of"].to_list() == [{"name": "user-2", "steps": 3}] * 4
    assert hidden["tgs"].equals(frame["tgs"])


def test_a_name_found_later_is_another_word_and_those_before_stay() -> None:
    told = Redaction("/home/grace/a.log")
    told.scan("/home/alan/b.log")
    assert told.redact("grace, alan") == "user-1, user-2"
    assert str(told) == "hidden: 2 users"


TEXTS = st.text() | st.sampled_from([text for _, text in (*SECRETS, *NAMES)])


@given(st.recursive(TEXTS | st.integers(), lambda it: st.lists(it) | st.dictionaries(TEXTS, it)))
def test_what_was_hidden_holds_nothing_more_to_hide(said: object) -> None:
    hidden = Redaction(said).redact(said)
    assert not Redaction(hidden).counts


def test_a_report_says_what_it_hides_and_its_numbers_stay(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "grace" / "out.log"
    log.parent.mkdir(parents=True)
    sample = next(ROOT.glob("sample_logs/**/*titan*.log"))
    lines = sample.read_text(encoding="utf-8", errors="replace").splitlines()
    lines.insert(len(lines) // 2, "RuntimeError: CUDA error in /home/grace/titan/train.py on host")
    log.write_text("\n".join(lines) + "\n")
    runner, store = CliRunner(), tmp_path / "store"
    assert runner.invoke(main, ["ingest", str(log), "--store", str(store)]).exit_code == 0
    told = {}
    for how in ("--redact", "--no-op"):
        asked = ["report", "--store", str(store), "--format", "json", "--out", str(tmp_path / how)]
        done = runner.invoke(main, [*asked, *(["--redact"] if how == "--redact" else [])])
        assert done.exit_code == 0, done.output
        told[how] = json.loads((tmp_path / how).read_text())
    whole, hidden = str(told["--no-op"]), str(told["--redact"])
    assert "/home/grace/titan" in whole
    assert "grace" not in hidden
    assert "user-1" in hidden
    number = re.compile(r"\d+\.\d+")
    assert number.findall(whole) == number.findall(hidden)
    page = runner.invoke(
        main, ["report", "--store", str(store), "--out", str(tmp_path / "p.html"), "--redact"]
    )
    assert "hidden: 1 user" in page.output
    assert "grace" not in (tmp_path / "p.html").read_text()


def written(folder: Path) -> str:
    """All that stands in files below a folder, and how they are called; not the writer's lock."""
    paths = [path for path in sorted(folder.rglob("*")) if path.name != "writer.lock"]
    return "\n".join([*map(str, paths), *(p.read_text() for p in paths if p.is_file())])


@pytest.mark.parametrize("asked", ["an option", "fairmfu.toml"])
def test_a_night_for_others_names_nobody_in_any_file(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "home" / "grace" / "logs"
    (path,) = write_night(logs, 1, Plan(seed=3), only=[0])
    crash = "RuntimeError: CUDA error, token hf_AbCdEfGhIjKlMnOpQr12345678 of grace, gpu7.lan"
    begun = path.read_text().splitlines(keepends=True)[:30]
    path.write_text("".join([*begun, crash, "\n"]))
    (logs / "broken.log.gz").write_bytes(b"\x1f\x8b, of grace")
    monkeypatch.chdir(tmp_path)
    options = ["nightly", str(logs), "--store", "store", "--title", "Nightly of grace"]
    if asked == "an option":
        hide = [*options, "--redact"]
    else:
        Path("fairmfu.toml").write_text("redact = true\n")
        hide = options
    others, own = tmp_path / "others", tmp_path / "own"
    done = CliRunner().invoke(main, [*hide, "--out", "others"], catch_exceptions=False)
    assert done.exit_code == 5  # a failed job comes before an unreadable log
    assert "hidden: 1 user, 1 secret, 1 host;" in done.stderr
    assert "grace" not in done.stdout
    text = written(others)
    for name in ("grace", "hf_AbCd", "gpu7.lan"):
        assert name not in text
    assert "user-1" in text
    for name in ("index.html", "runs.html", "summary.md"):
        assert REDACTED.casefold() in (others / name).read_text().casefold(), name
    summary = json.loads((others / "summary.json").read_text())
    assert summary["redacted"]
    (page,) = others.glob("archive/*/index.html")
    assert REDACTED in page.read_text()

    (logs / "broken.log.gz").unlink()
    Path("fairmfu.toml").unlink(missing_ok=True)
    path.write_text(path.read_text() + "\n")  # so that it is read once more
    done = CliRunner().invoke(main, [*options, "--out", "own"], catch_exceptions=False)
    assert done.exit_code == 5, done.output
    whole = json.loads((own / "summary.json").read_text())
    assert "hidden" not in done.output
    assert "of grace" in whole["runs"][0]["outcome_text"]
    assert not whole["redacted"]
    for name in ("tgs", "mfu", "started_at", "run_id"):
        assert whole["runs"][0][name] == summary["runs"][0][name]


def test_a_night_for_others_that_fails_says_why_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "home" / "grace" / "broken.log.gz"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\x1f\x8b, of grace")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main, ["nightly", str(broken), "--store", "s", "--out", "o", "--redact"]
    )
    assert done.exit_code == 1
    assert "grace" in done.stderr
    assert "broken.log.gz" in (tmp_path / "o" / "status.js").read_text()
    assert "grace" not in written(tmp_path / "o")
