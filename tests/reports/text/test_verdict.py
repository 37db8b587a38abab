"""The sentence of `compare`: who is faster, how sure, what the logs said, and why not so."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.metrics.compare.repeated_runs import SpeedRatio
from fairmfu.reports.text.verdict import _digits
from sample_logs.make_synthetic import SIDECARS, WRITERS, ImaginaryRun
from tests.support.folders import ROOT
from tests.support.packs import unpacked

SAMPLES = ROOT / "sample_logs"
DEVICE = 'accelerator = "NVIDIA H100 80GB HBM3"\n'


def fairmfu(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def steps(seconds: float, seed: int, count: int = 600, noise: float = 0.01) -> list[float]:
    chance = np.random.default_rng(seed)
    return [9.6, *(seconds * (1 + noise * chance.standard_normal(count - 1))).tolist()]


class Shelf:
    """A store that logs of imaginary runs are put into, all at once when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: list[Path] = []

    @property
    def store(self) -> Path:
        if self._waiting:
            fairmfu("ingest", *self._waiting, "--store", self.folder / "store")
            self._waiting = []
        return self.folder / "store"

    def put(  # noqa: PLR0913 - what a run may have of its own
        self,
        name: str,
        log_format: str,
        seconds: float,
        *,
        seed: int = 1,
        noise: float = 0.01,
        count: int = 600,
        seq_len: int = 8192,
        facts: str = "",
    ) -> None:
        made_up = steps(seconds, seed, count, noise)
        run = ImaginaryRun(step_s=made_up, log_interval=2, seq_len=seq_len)
        log = self.folder / f"{name}.log"
        log.write_text("\n".join(WRITERS[log_format](run)) + "\n", encoding="utf-8")
        log.with_name(f"{name}.log.facts.toml").write_text(
            SIDECARS[log_format] + facts, encoding="utf-8"
        )
        self._waiting.append(log)

    def compare(self, *arguments: str) -> str:
        return fairmfu("compare", *arguments, "--store", self.store)

    def first_line(self, *arguments: str) -> str:
        return self.compare(*arguments).splitlines()[0]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Two frameworks, of which the slower prints the higher figures; nobody changes it."""
    shelf = Shelf(tmp_path_factory.mktemp("pair"))
    shelf.put("titan", "torchtitan", 1.28, seed=1)
    shelf.put("xtuner", "xtuner", 1.40, seed=2)
    return shelf


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Three repeats of one setup and a run of another; nobody changes it."""
    shelf = Shelf(tmp_path_factory.mktemp("setup"))
    repeats(shelf, "torchtitan", (1.20, 1.28, 1.36))
    shelf.put("once<b>", "xtuner", 1.60, seed=9)
    return shelf


@pytest.fixture(scope="module")
def page(setup: Shelf) -> str:
    """The report of that setup."""
    out = setup.folder / "page.html"
    fairmfu("report", "--store", setup.store, "--out", out)
    return out.read_text(encoding="utf-8")


def numbers(text: str, pattern: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, text
    return [float(group.replace(",", "")) for group in found.groups()]


def test_a_log_that_prints_nothing_hides_no_other(tmp_path: Path) -> None:
    """Of one H200: the second run's log has samples/s only, the third's as the first's."""
    fairmfu("ingest", SAMPLES / "h200", "--store", tmp_path / "store")
    (said, *_) = fairmfu("compare", "--store", tmp_path / "store").splitlines()
    assert "1.22x (1.21 to 1.24) as fast per GPU as deepspeed-0.19.8/bf16 and 1.396x" in said
    assert ". The logs suggest 1.42x against xtuner-0.2.0/bf16. Reasons: the log of t" in said


def test_the_faster_run_though_its_log_says_otherwise(pair: Shelf) -> None:
    said = pair.first_line("xtuner", "titan")
    ratio, low, high = numbers(said, r"titan is ([\d.]+)x \(([\d.]+) to ([\d.]+)\) as fast per GPU")
    assert low <= ratio <= high
    assert ratio == pytest.approx(1.40 / 1.28, abs=0.01)
    # both logs by their own formulas: 370.8 at 6,398 tokens/s and 474.2
    (logged,) = numbers(said, r"as fast per GPU as xtuner. The logs suggest ([\d.]+)x. Reasons: ")
    assert logged == pytest.approx(370.8 / 474.2 * 1.40 / 1.28, abs=0.01)
    assert "the log of xtuner counts activation checkpointing as work (x1.31)" in said
    assert "ignores grouped-query attention (x1.09)" in said
    assert "the log of titan counts masked-out attention as work (x1.13)" in said


def test_causes_multiply_to_what_the_logs_say(pair: Shelf) -> None:
    said = pair.first_line()
    ours, logs = numbers(said, r"is ([\d.]+)x .*The logs suggest ([\d.]+)x")
    told = dict(re.findall(r"the log of (\w+) (.*?)(?=, the log| and the log|\.$)", said))
    product = {
        run: np.prod([float(x) for x in re.findall(r"\(x([\d.]+)\)", words)])
        for run, words in told.items()
    }
    assert ours * product["titan"] / product["xtuner"] == pytest.approx(logs, rel=0.02)


def test_a_difference_inside_the_noise_is_called_that(shelf: Shelf) -> None:
    shelf.put("one", "torchtitan", 1.28, seed=1, noise=0.2)
    shelf.put("two", "xtuner", 1.285, seed=2, noise=0.2)
    said = shelf.first_line()
    assert "are not measurably different (" in said
    apart, shown = numbers(
        said,
        r"they are ([\d.]+) % apart; their noise hides differences below ([\d.]+) %",
    )
    assert apart < shown
    assert "as fast per GPU" not in said


def test_what_is_told_apart_is_not_said_to_be_noise(shelf: Shelf) -> None:
    shelf.put("best", "torchtitan", 1.280, seed=1, noise=0.001)
    shelf.put("near", "torchtitan", 1.284, seed=2, noise=0.001)
    shelf.put("noisy", "xtuner-v1", 1.275, seed=3, noise=0.2)
    said = shelf.first_line()
    assert "best and near are equally fast, within 0.3 %" in said
    assert "; best and noisy are not measurably different (" in said


def test_the_page_says_of_the_first_what_it_is_of_its_setup(setup: Shelf, page: str) -> None:
    rows = json.loads(setup.compare("--format", "json"))
    best = next(row["relative_tgs"] for row in rows if row["rank"] == 1)
    assert best > 1.01
    shown = re.findall(r'data-of="relative_tgs"[^>]*>([^<]*)<', unpacked(page))
    assert f"{best:.2f}x" in shown


def test_runs_that_lack_nothing_and_have_no_rank_do_not_ask_for_facts(shelf: Shelf) -> None:
    for name, seconds in (("one", 1e-3), ("two", 2e-3)):  # beyond every peak
        shelf.put(name, "torchtitan", seconds)
    shelf.put("three", "xtuner", 1e-3)
    assert shelf.first_line() == "No run can be ranked. The reasons are below."


def test_one_run_each_says_what_is_unknown(pair: Shelf) -> None:
    assert "No setup has a second run, so run-to-run noise is unknown." in pair.compare()


def repeats(shelf: Shelf, log_format: str, rates: Sequence[float], facts: str = "") -> None:
    for place, seconds in enumerate(rates):
        name = f"{log_format}-{place}"
        shelf.put(name, log_format, seconds, seed=place + len(log_format), facts=facts)


def test_three_repeats_are_spoken_of_as_a_setup(shelf: Shelf) -> None:
    repeats(shelf, "torchtitan", (1.28, 1.29, 1.27))
    shelf.put("once", "xtuner", 1.60, seed=9)
    text = shelf.compare()
    assert "torchtitan (3 runs) is 1.2" in text.splitlines()[0]
    assert "The interval of torchtitan (3 runs) covers run-to-run noise; once has too few" in text
    (low, high) = numbers(text, r"torchtitan \(3 runs\) is [\d.]+x \(([\d.]+) to ([\d.]+)\)")
    assert high - low > 0.03  # the runs are 0.8 % apart, t of 2 degrees of freedom


def test_the_mfu_of_a_setup_is_that_of_its_tgs(shelf: Shelf) -> None:
    """The fastest repeat's stood beside the mean of all."""
    for seed, seconds in enumerate((1.2, 1.3, 1.4), 1):
        shelf.put(f"r{seed}", "torchtitan", seconds, seed=seed, noise=0.002)
    tgs, mfu = numbers(shelf.first_line(), r"([\d,]+) tokens/s/GPU, MFU ([\d.]+) %")
    rows = json.loads(shelf.compare("--format", "json"))
    per_tgs = rows[0]["mfu"] / rows[0]["tgs"]
    assert tgs == pytest.approx(np.prod([row["tgs"] for row in rows]) ** (1 / 3), abs=0.5)
    assert mfu == pytest.approx(100 * tgs * per_tgs, abs=0.05)
    assert mfu != pytest.approx(100 * rows[0]["mfu"], abs=1)


def test_runs_that_are_ranked_without_an_mfu_say_what_they_lack(shelf: Shelf) -> None:
    """Of a T4 there is no peak in bf16; the table left the columns out and did not say why."""
    shelf.put("a", "torchtitan", 1.2)
    shelf.put("b", "xtuner", 1.3)
    fairmfu("set", "a", "b", "accelerator=NVIDIA T4", "--store", shelf.store)
    assert "peak_flops=N (dense FLOP/s in that precision)." in shelf.compare()
    fairmfu("set", "a", "b", "peak_flops=989.4e12", "--store", shelf.store)
    assert "No MFU" not in shelf.compare()


def test_two_repeats_are_too_few(shelf: Shelf) -> None:
    repeats(shelf, "torchtitan", (1.28, 1.30))
    text = shelf.compare()
    assert "torchtitan-0 is 1.01" in text.splitlines()[0]
    assert "torchtitan-0 and torchtitan-1 have the same setup. Run-to-run noise" in text
    assert "it needs 3 independent launches, and these are 2." in text


def test_repeats_that_do_not_say_their_version_are_named(shelf: Shelf) -> None:
    repeats(shelf, "torchtitan", (1.28, 1.29, 1.27))
    repeats(shelf, "xtuner", (1.60, 1.61, 1.62))
    text = shelf.compare()
    assert "are not treated as repeats: version unknown." in text
    assert f"fairmfu set --store {shelf.store} RUN framework_version=VALUE" in text


def test_logs_that_would_name_another_winner_are_told_of_beside_near_repeats(shelf: Shelf) -> None:
    """The logs of the first two runs agree with ours, that of the third turns the order round."""
    repeats(shelf, "torchtitan", (1.28, 1.30))
    shelf.put("slow", "xtuner", 1.40, seed=9)
    said = shelf.first_line()
    assert said.endswith(". By the logged figures, slow would be fastest.")
    assert said.count("By the logged figures") == 1


def test_logs_that_agree_are_not_said_to_mislead(shelf: Shelf) -> None:
    shelf.put("short", "torchtitan", 1.28, count=6)
    shelf.put("longer", "torchtitan", 1.60, count=20, seed=2)
    text = shelf.compare()
    assert "short has no 95 % interval (" in text.splitlines()[0]
    assert re.search(
        r". By the logged figures, it also has [\d.]+x the speed of \S+\.$", text.splitlines()[0]
    )
    assert "By the logged figures alone" not in text


def test_a_run_against_itself_is_no_comparison(pair: Shelf) -> None:
    arguments = ["compare", "titan", "titan", "--store", str(pair.store)]
    result = CliRunner().invoke(main, arguments)
    assert "All names are of the same run" in result.stderr
    assert re.search("titan runs at .*; nothing else here is comparable.", result.stdout)


def test_too_few_windows_claim_no_winner(shelf: Shelf) -> None:
    shelf.put("titan", "torchtitan", 1.28, count=6)
    shelf.put("xtuner", "xtuner", 1.60, count=20, seed=2)
    said = shelf.first_line()
    assert "No winner is claimed, because " in said
    assert "as fast per GPU" not in said


def test_runs_that_are_not_alike_have_no_winner(shelf: Shelf) -> None:
    shelf.put("long", "torchtitan", 2.56, seq_len=16_384)
    shelf.put("short", "torchtitan", 1.28, seed=2)
    effect, said, *_ = shelf.compare("long", "short").splitlines()
    assert "sequence length 16,384 -> 8,192: 1.000x" in effect
    assert said.startswith(
        "long and short train the same model, but are not ranked: different sequence length "
        "(16,384 vs 8,192); FLOPs per token (5.7914e+10 vs 5.1471e+10). No winner is claimed."
    )
    (ratio,) = numbers(said, r"Scaled to equal FLOPs per token \(5.147e\+10\): .*, ([\d.]+)x")
    rows = json.loads(shelf.compare("--format", "json"))
    mfu = {row["name"]: row["mfu"] for row in rows}
    assert ratio == pytest.approx(mfu["long"] / mfu["short"], abs=0.006)
    assert {row["verdict"] for row in rows} == {said.split(" They run at")[0]}


def test_a_fact_that_became_unknown_leaves_the_ratio_of_the_rates(shelf: Shelf) -> None:
    """As the nightly report tells it: slower, whatever the work per token is."""
    shelf.put("good", "torchtitan", 1.28)
    shelf.put("bad", "torchtitan", 1.28 / 0.9, seed=2)
    fairmfu("set", "bad", "document_mask=true", "--store", shelf.store)
    effect, said, *_ = shelf.compare("good", "bad").splitlines()
    assert "attention causal -> causal, stops at document borders: 0.900x" in effect
    assert "are not comparable, so no winner is claimed: bad: unknown" in said
    (ratio, low, high) = numbers(said, r"bad has ([\d.]+)x \(([\d.]+) to ([\d.]+)\) the rate\.")
    assert low < ratio < high
    assert ratio == pytest.approx(0.9, abs=0.01)
    assert "Other differences: attention (causal vs causal, stops at document borders)" in said
    (back,) = numbers(shelf.compare("bad", "good"), r"good has ([\d.]+)x")
    assert back == pytest.approx(1 / ratio, rel=0.01)


def test_other_models_are_not_comparable(shelf: Shelf) -> None:
    shelf.put("llama", "torchtitan", 1.28)
    shelf.put("small", "xtuner-v1", 1.28, seed=2)
    fairmfu("set", "small", "model=llama2-7b", "--store", shelf.store)
    said = shelf.first_line("llama", "small")
    assert "are not comparable, so no winner is claimed: different models (llama-3-8b vs " in said
    assert "the rate" not in said


def test_losses_and_cost_stand_under_the_table(pair: Shelf) -> None:
    text = pair.compare("--price", "2.50 EUR")
    same = r"(titan 2.2\d+, xtuner 2.2\d+|2.2\d+ each)"
    assert re.search(rf"- Loss at 39,321,600 tokens: {same}\. Equal within their noise\.", text)
    hours, more = numbers(text, r"1 billion tokens cost ([\d.]+) and ([\d.]+) GPU-hours")
    assert more / hours == pytest.approx(1.40 / 1.28, rel=0.01)
    paid = numbers(text, r"or ([\d.]+) and ([\d.]+) at 2.50 EUR per GPU-hour")
    assert paid == pytest.approx([2.5 * hours, 2.5 * more], rel=0.002)
    assert "2.50 EUR / GPU-h" in text


def test_losses_that_are_apart_stand_beside_the_claim(shelf: Shelf) -> None:
    shelf.put("titan", "torchtitan", 1.28, seed=1)
    shelf.put("xtuner", "xtuner", 1.40, seed=2)
    log = shelf.folder / "xtuner.log"
    log.write_text(re.sub(r"loss: 2\.", "loss: 3.", log.read_text()), encoding="utf-8")
    other = shelf.folder / "other"
    fairmfu("ingest", log, shelf.folder / "titan.log", "--store", other)
    text = fairmfu("compare", "--store", other)
    assert "Their losses differ, so they may not have trained the same" in text.splitlines()[0]
    assert re.search(r"Loss at [\d,]+ tokens: titan 2.2\d+, xtuner 3.2\d+\. They differ by", text)


def test_json_stays_a_list_of_rows_and_holds_the_sentence(pair: Shelf) -> None:
    rows = json.loads(pair.compare("--format", "json", "--price", "3"))
    assert [row["name"] for row in rows] == ["titan", "xtuner"]
    assert [row["logged_rank"] for row in rows] == [2, 1]
    for row in rows:
        assert row["verdict"] in pair.first_line()
        assert any(note.startswith("No setup has a second run") for note in row["notes"])
        assert row["cost_per_billion_tokens"] == pytest.approx(
            3 * row["gpu_hours_per_billion_tokens"]
        )


def test_what_is_no_price_is_an_error() -> None:
    result = CliRunner().invoke(main, ["compare", "--price", "cheap"])
    assert result.exit_code == 2
    assert "'cheap' is not a price per GPU-hour" in result.stderr


def test_the_page_says_the_same(setup: Shelf, page: str) -> None:
    assert "once<b>" not in page
    shown = re.search(r'<p class="says"[^>]*>(.*?)</p>', page)
    assert shown
    words = unescape(re.sub(r"<[^>]*>", "", shown[1])).replace("\N{BLACK CIRCLE}\xa0", "")
    assert "once<b>" in words
    assert words in setup.first_line()


def test_logs_that_say_what_we_say_mislead_nobody(shelf: Shelf) -> None:
    """No winner for want of windows, but one framework's logs have the ratio right."""
    shelf.put("fast", "torchtitan", 1.28, seed=1, count=6)
    shelf.put("slow", "torchtitan", 1.50, seed=2, count=600)
    said = " ".join(shelf.compare().split())
    assert "No winner is claimed" in said
    assert "By the logged figures, it also has 1.1" in said
    assert "would seem" not in said


@pytest.mark.parametrize(
    ("low", "ratio", "high", "digits"),
    [
        (1.20, 1.25, 1.30, 2),
        (1.249, 1.25, 1.251, 3),
        (1.01, 1.015, 1.02, 3),
        (1.003, 1.025, 1.12, 3),
        (1.0003, 1.025, 1.12, 4),
    ],
)
def test_an_interval_does_not_read_as_a_point_or_as_reaching_one(
    low: float, ratio: float, high: float, digits: int
) -> None:
    assert _digits(SpeedRatio(ratio, low, high)) == digits
