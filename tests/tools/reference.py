"""The tables of README.md and docs/ that come from code: `make reference` writes them.

Each stands between two comments, so that prose and tables share a page:

    <!-- make reference: NAME -->
    <!-- end -->
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import polars as pl

from fairmfu.cli import CONTEXT_SETTINGS, main
from fairmfu.ingest.core.errors import NoteKind
from fairmfu.ingest.core.schema import EVENT_KINDS, FACT_NAMES, OUTCOMES, PHASES, QUIRKS, TABLES
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import StepLine
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.audit.era_lookup import all_eras
from fairmfu.metrics.compare.comparability import COMPARISON
from fairmfu.metrics.core.messages import MessageKind
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.formula import accelerators, flops
from fairmfu.metrics.formula.model_shapes import from_hugging_face, text_config
from fairmfu.metrics.formula.model_shapes import model_types as hugging_face_types
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.calculator import ask, compare_with_other_tools
from fairmfu.metrics.pipeline.column_docs import COMPARISON_MEANINGS, METRIC_MEANINGS
from fairmfu.reports.text.summary import accelerator_table, era_table, model_table
from fairmfu.reports.text.tabular import decimal, percent, render_frame
from tests.metrics.formula.test_flop_counter import written_out
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, module_name

H200: Final = ROOT / "sample_logs" / "h200"
REGION: Final = re.compile(
    r"(<!-- make reference: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)


def pages() -> list[Path]:
    """README.md and all of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(text: str) -> str:
    """The text of a page with each of its regions as the code has it now."""
    return REGION.sub(lambda at: f"{at[1]}{REGIONS[at['name']]().strip(chr(10))}\n{at[3]}", text)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown; null is an empty cell."""
    texts = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    return render_frame(pl.DataFrame(texts), "markdown")


# -- README ----------------------------------------------------------------------------------

SHOWN: Final = {
    "torchtitan": "Torchtitan 0.2.2",
    "deepspeed": "DeepSpeed 0.19.8",
    "xtuner": "XTuner 0.2.0, ThroughputHook",
}
"""Formats of the first table, in its order, and what prints them."""


def logged_and_recomputed() -> str:
    """One model on one GPU as three frameworks log it."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        ingest_run.ingest_paths([H200], store)
        rows = {row["log_format"]: row for row in analyse(store.tables()).metrics.to_dicts()}
    return table([_logged(label, rows[name]) for name, label in SHOWN.items()])


def _logged(label: str, row: Mapping[str, Any]) -> dict[str, str]:
    ours, theirs = row["tgs"] * row["flops_per_token"] / 1e12, row["logged_tflops"]
    mfu = f", MFU {percent(row['logged_mfu'])}" if row["logged_mfu"] else ""
    return {
        "logged by": label,
        "logged": f"{decimal(theirs)} TFLOP/s{mfu}" if theirs else "only samples/s",
        "ours": f"{decimal(ours)} TFLOP/s, MFU {percent(row['mfu'])}",
        "logged / ours": f"{theirs / ours:.3f}" if theirs else "-",
        "tokens/s/GPU": f"{row['tgs']:,.0f}",
    }


FRAMEWORK_LABELS: Final = {
    "torchtitan": "Torchtitan",
    "xtuner": "XTuner",
    "deepspeed": "DeepSpeed",
    "megatron-lm": "Megatron-LM",
    "mindspeed-mm": "MindSpeed",
    "mindspeed-llm": "MindSpeed",
    "transformers": "Hugging Face Trainer, with or without DeepSpeed",
}
"""How people write a framework; one that is not here has a row under its own name."""


def formats_by_framework() -> str:
    """A row for each framework: its formats with their versions, and what is read beside them."""
    rows = []
    by_label: dict[str, dict[str, str]] = {}
    for f in BUILT_IN_FORMATS:
        label = FRAMEWORK_LABELS.get(f.framework, f.framework)
        by_label.setdefault(label, {})[f.name] = f.versions
    for label, of in by_label.items():
        also: dict[str, list[str]] = {}
        for name in of:
            stem, _, rest = name.rpartition("-")
            main = stem if stem in of and rest in BESIDE else name
            also.setdefault(main, []).extend([rest] if main != name else [])
        told = [
            f"{name}: {of[name]}" + (f"; also {', '.join(rest)}" if rest else "")
            for name, rest in also.items()
        ]
        rows.append({"framework": label, "formats: versions": NEW_LINE.join(told)})
    return table(rows).replace(NEW_LINE, "<br>")


BESIDE: Final = ("tensorboard", "spans", "scalars", "tracker", "state", "timers", "csv")
"""What a framework writes beside its step lines: formats of their own, named after its."""
NEW_LINE: Final = "\N{PILCROW SIGN}"
"""In a cell, until it is Markdown."""


# -- what is read and stored -----------------------------------------------------------------


def formats() -> str:
    """A row for each format: versions, and what its rates are from."""
    return table(
        [
            {
                "format": f.name,
                "framework": f.framework,
                "versions": f.versions,
                "time evidence, best first": ", ".join(f.evidence),
                "a step is": f.step_unit.replace("_", " "),
            }
            for f in BUILT_IN_FORMATS
        ]
    )


def statements() -> str:
    """The step line of each format that says most: an example, and the statement that prints it."""
    told = {f.name: _fullest(f.steps) for f in BUILT_IN_FORMATS}
    return "\n\n".join(
        f"{name}, printed by `{line.printed_by}`:\n\n    {_shortened(line.example)}"
        for name, line in told.items()
    )


def _fullest(lines: Sequence[StepLine]) -> StepLine:
    """Of the repository that the first is from, not of its forks."""
    repository = lines[0].printed_by.split("/")[:2]
    own = [line for line in lines if line.printed_by.split("/")[:2] == repository]
    return max(own, key=lambda line: len(line.columns))


def _shortened(line: str) -> str:
    return textwrap.shorten(" ".join(line.split()), 300, placeholder=" ...")


def facts() -> str:
    """What --set, facts.toml and fairmfu.toml take."""
    return table(
        [
            {
                "fact": name,
                "value": ", ".join(fact.choices) or _VALUES[fact.kind],
                "unit": fact.unit,
                "meaning": fact.meaning,
            }
            for name, fact in FACT_NAMES.items()
        ]
    )


_VALUES: Final = {
    "int": "integer",
    "float": "number",
    "bool": "true, false",
    "text": "text",
    "json": "JSON",
}


def store_columns() -> str:
    """The tables that ingest writes."""
    return "\n\n".join(
        f"### {name}\n\n"
        + table(
            [
                {"column": key, "type": kind(c.dtype), "unit": c.unit, "meaning": c.meaning}
                for key, c in columns.items()
            ]
        )
        for name, columns in TABLES.items()
    )


def metric_columns() -> str:
    """One row per run: what is computed."""
    return table(
        [
            {
                "column": name,
                "type": kind(dtype),
                "unit": METRIC_MEANINGS[name][0],
                "meaning": METRIC_MEANINGS[name][1],
            }
            for name, dtype in METRICS.items()
        ]
    )


def comparison_columns() -> str:
    """One row per run: what `compare` says of it besides its metrics."""
    return table(
        [
            {"column": name, "type": kind(COMPARISON[name]), "unit": unit, "meaning": meaning}
            for name, (unit, meaning) in COMPARISON_MEANINGS.items()
        ]
    )


_KINDS: Final = {
    pl.String: "text",
    pl.Int64: "integer",
    pl.Float64: "number",
    pl.Boolean: "true, false",
    pl.Datetime: "time",
    pl.Struct: "record",
}


def kind(dtype: pl.DataType) -> str:
    """A dtype in a word."""
    if isinstance(dtype, pl.List):
        return f"list of {kind(dtype.inner)}"  # type: ignore[arg-type]
    return _KINDS[dtype.base_type()]


def outcomes() -> str:
    """How a launch ended."""
    return table([{"outcome": name, "meaning": told} for name, told in OUTCOMES.items()])


def event_kinds() -> str:
    """What else a log tells of."""
    return table([{"kind": name, "meaning": told} for name, told in EVENT_KINDS.items()])


def message_kinds() -> list[MessageKind]:
    """Return all kinds of messages about runs, by identifier."""
    return _by_identifier(named_message_kinds())


def error_kinds() -> list[NoteKind]:
    """Return all kinds of errors and notes, by identifier."""
    return _by_identifier(named_error_kinds())


def named_error_kinds() -> Iterator[tuple[str, NoteKind]]:
    """Yield all kinds of errors and notes with the names of their constants."""
    return _kinds([path for path in MODULES if path.name.endswith(CATALOGUE_SUFFIX)], NoteKind)


CATALOGUE_SUFFIX: Final = "messages.py"
"""End of the names of modules with kinds of errors; a test keeps kinds out of others."""


KindT = TypeVar("KindT", MessageKind, NoteKind)


def _by_identifier(kinds: Iterable[tuple[str, KindT]]) -> list[KindT]:
    every = {kind.identifier: kind for _, kind in kinds}
    return [every[identifier] for identifier in sorted(every)]


def named_message_kinds() -> Iterator[tuple[str, MessageKind]]:
    """Yield all kinds of messages about runs with the names of their constants."""
    return _kinds([path for path in MODULES if path.parts[0] == "metrics"], MessageKind)


def _kinds(modules: Iterable[Path], kind: type[KindT]) -> Iterator[tuple[str, KindT]]:
    for path in modules:
        module = importlib.import_module(f"fairmfu.{module_name(path)}")
        for name, value in vars(module).items():
            if isinstance(value, kind):
                yield name, value


EFFECTS: Final = {
    "note": "none",
    "doubt": "may change a figure by more than 1 %",
    "unranked": "costs the rank",
}


def messages() -> str:
    """Return the kinds of messages: identifier, sentence, when it appears, and what to do."""
    return table(
        [
            {
                "identifier": kind.identifier,
                "sentence": PLACEHOLDER.sub(r"…", kind.text),
                "effect": EFFECTS[kind.effect],
                "when": kind.when,
                "what to do": PLACEHOLDER.sub(r"…", kind.fix),
            }
            for kind in message_kinds()
        ]
    )


def errors() -> str:
    """Return the kinds of errors and notes, with the columns of `messages`."""
    return table(
        [
            {
                "identifier": kind.identifier,
                "sentence": re.sub("…+", "…", " ".join(PLACEHOLDER.sub("…", kind.text).split())),
                "when": kind.when,
                "what to do": PLACEHOLDER.sub("…", kind.fix),
            }
            for kind in error_kinds()
        ]
    )


PLACEHOLDER: Final = re.compile(r"\{[^}]*\}")


# -- tables of the formula -------------------------------------------------------------------


def phases() -> str:
    """The phases of a step."""
    return table([{"phase": name, "meaning": told} for name, told in PHASES.items()])


def phase_timers() -> str:
    """A row for each phase of each set of timers, with the printed names."""
    named: dict[tuple[str, str], list[str]] = {}
    for timer in dict.fromkeys(timer for one in BUILT_IN_FORMATS for timer in one.phase_timers):
        part = f" (part of {timer.part_of})" if timer.part_of else ""
        timers = named.setdefault((timer.group, timer.phase), [])
        timers += [item for item in [f"{timer.timer}{part}"] if item not in timers]
    return table(
        [
            {"timers of": group, "phase": phase, "names": ", ".join(timers)}
            for (group, phase), timers in sorted(named.items(), key=lambda item: item[0][0])
        ]
    )


def quirks() -> str:
    """Return what is true of some formats alone, and of which."""
    return table(
        [
            {
                "quirk": name,
                "meaning": told,
                "formats": ", ".join(one.name for one in BUILT_IN_FORMATS if name in one.quirks),
            }
            for name, told in QUIRKS.items()
        ]
    )


def eras() -> str:
    """The formulas that frameworks print by."""
    return render_frame(era_table(all_eras()), "markdown")


def peaks() -> str:
    """Dense peaks, and what their sources' short names mean."""
    devices = accelerator_table().with_columns(
        pl.col("fp32", "tf32", "fp16", "bf16", "fp8", "fp4").map_elements(
            lambda peak: f"{peak:,.10g}", return_dtype=pl.String
        )
    )
    words = (f"- *{short}*: {spelt}" for short, spelt in accelerators.source_references().items())
    return f"{render_frame(devices, 'markdown')}\n\n" + "\n".join(words)


def models() -> str:
    """Known models."""
    counts = pl.col("params_total", "params_active", "hidden_size", "params_tower")
    thousands = counts.map_elements(lambda n: f"{n:,}", return_dtype=pl.String)
    return render_frame(model_table().with_columns(thousands), "markdown")


def model_types() -> str:
    """Model types that a config.json may have, by the certainty of their count."""
    golden = ROOT / "tests" / "golden" / "flop_counter"
    files = ("configs", "more_configs", "linear_configs", "type_configs")
    configs = [
        c for name in files for c in json.loads((golden / f"{name}.json").read_text()).values()
    ]
    estimated = {str(text_config(c)["model_type"]) for c in configs if is_estimate(written_out(c))}
    known = hugging_face_types()
    return table(
        [
            {
                "count": title,
                "model types": ", ".join(n for n in known if (n in estimated) is estimate),
            }
            for title, estimate in (("exact", False), ("with an estimate", True))
        ]
    )


def is_estimate(config: Mapping[str, Any]) -> bool:
    """Return whether an operator of this config's model depends on its kernel."""
    return any(op.estimate for op in flops.operators(from_hugging_face(config), 512))


def formula() -> str:
    """As the code states it."""
    return textwrap.indent(str(flops.__doc__).strip(), "    ", lambda line: bool(line.strip()))


def others() -> str:
    """What formulas of other tools make of one model."""
    found = compare_with_other_tools(ask("llama3-8b", 8192))
    return table(
        [
            {
                "formula": one["name"],
                "FLOPs/token": f"{one['flops_per_token']:,.0f}",
                "/ ours": f"{one['ratio_to_ours']:.3f}",
                "difference from ours": one["why"],
            }
            for one in found
        ]
    )


# -- commands --------------------------------------------------------------------------------


def commands() -> str:
    """Each command with what it takes."""
    root = click.Context(main, info_name="fairmfu", **CONTEXT_SETTINGS)
    return "\n\n".join(_command(context) for context in _contexts(root))


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """Of a command and all beneath it."""
    yield context
    if isinstance(context.command, click.Group):
        for name, command in context.command.commands.items():
            yield from _contexts(click.Context(command, context, name))


def _command(context: click.Context) -> str:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    options = [p for p in context.command.params if isinstance(p, click.Option) and not p.hidden]
    parts = [f"## {context.command_path}", f"    {usage}", *_paragraphs(context.command.help or "")]
    if options:
        parts.append(table([_option(option, context) for option in options]))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> Iterator[str]:
    r"""Of a docstring: prose, and what stands under \b as a block of code."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if not part.startswith(("\b", r"\b")):
            yield " ".join(part.split())
            continue
        lines = part.splitlines()[1:]
        if re.fullmatch(r"\s*Examples?:", lines[0]):
            lines = lines[1:]
        lines = textwrap.dedent("\n".join(lines)).splitlines()
        yield "\n".join(f"    {line}" for line in lines)


def _option(option: click.Option, context: click.Context) -> dict[str, str]:
    """A row of the table of options."""
    record = option.get_help_record(context)
    names, told = record or ("", "")
    words, _, extra = told.partition("  [")
    more = extra.rstrip("]").replace("]  [", "; ")
    return {"option": names, "meaning": " ".join(words.split()), "default, variable": more}


REGIONS: Final[dict[str, Callable[[], str]]] = {
    "logged-and-recomputed": logged_and_recomputed,
    "formats-by-framework": formats_by_framework,
    "formats": formats,
    "statements": statements,
    "facts": facts,
    "store-columns": store_columns,
    "metric-columns": metric_columns,
    "comparison-columns": comparison_columns,
    "outcomes": outcomes,
    "event-kinds": event_kinds,
    "quirks": quirks,
    "phases": phases,
    "phase-timers": phase_timers,
    "messages": messages,
    "errors": errors,
    "eras": eras,
    "peaks": peaks,
    "models": models,
    "model-types": model_types,
    "formula": formula,
    "others": others,
    "commands": commands,
}


def write() -> None:
    """Bring every page up to date."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            page.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    write()
