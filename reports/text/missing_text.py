"""Missing facts as text: what unlocks what, by folder; and a template to fill in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.pipeline.run_needs import (
    ALTERNATIVES,
    CONDITIONS,
    RunNeeds,
    facts_by_folder,
    unlocks,
)

from .fact_examples import fact_example, fact_kind, fact_values
from .tabular import count_noun, render_frame, wrapped

__all__ = ["facts_template", "missing_rows", "show_facts", "show_missing"]

if TYPE_CHECKING:
    from fairmfu.metrics.audit.fact_suggestions import Proposal

Columns = dict[str, tuple[str, Any]]

_UNLOCKS: Final[Columns] = {
    "facts": ("facts", str),
    "runs": ("more runs with an MFU", "{:,}".format),
    "instead": ("or instead", str),
}
_FOLDERS: Final[Columns] = {
    "folder": ("folder", str),
    "runs": ("runs", "{:,}".format),
    "facts": ("facts", str),
}
FACT_COLUMNS: Final[Columns] = {
    "fact": ("fact", str),
    "values": ("values", str),
    "unit": ("unit", str),
    "example": ("example", str),
    "meaning": ("meaning", str),
}
MAX_FOLDERS: Final = 20
"""Most rows of the table by folder."""

MAX_PROPOSALS: Final = 3
"""Most proposals that a template shows for a set of runs."""


def show_facts(output: str) -> str:
    """Return all facts with values, unit, example and meaning."""
    rows = [
        {
            "fact": name,
            "values": fact_kind(name),
            "unit": fact.unit or None,
            "example": fact_example(name),
            "meaning": fact.meaning,
        }
        for name, fact in FACT_NAMES.items()
    ]
    return render_frame(pl.DataFrame(rows), output, FACT_COLUMNS)


def missing_rows(needs: Sequence[RunNeeds]) -> pl.DataFrame:
    """Return a row per run, for JSON and CSV."""
    rows = [
        {
            "run_id": run.run_id,
            "name": run.name,
            "folder": run.folder,
            "facts": list(run.facts),
            "gain": run.gain,
            "reason": run.reason or None,
        }
        for run in needs
    ]
    return pl.DataFrame(rows, schema=MISSING_SCHEMA)


MISSING_SCHEMA: Final = pl.Schema(
    {
        **dict.fromkeys(("run_id", "name", "folder"), pl.String()),
        "facts": pl.List(pl.String()),
        **dict.fromkeys(("gain", "reason"), pl.String()),
    }
)


def show_missing(needs: Sequence[RunNeeds], output: str) -> str:
    """Return what unlocks what, then the facts by folder."""
    gaining = [run for run in needs if run.gain]
    parts = [_no_gain(needs)]
    if gaining:
        head = (
            f"{_gains(gaining)} from facts that are not in the logs. Counts assume that the rows "
            "above are filled in."
        )
        conditions = [
            f"{name}: {CONDITIONS[name]}."
            for name in CONDITIONS
            if any(name in run.facts for run in gaining)
        ]
        parts = [
            wrapped(head),
            render_frame(_unlock_frame(gaining), output, _UNLOCKS),
            "\n".join(conditions),
            render_frame(_folder_frame(gaining), output, _FOLDERS),
            _more_folders(gaining),
            *parts,
            "Template to fill in: fairmfu missing --write facts.toml. One run: fairmfu set RUN "
            "NAME=VALUE. All facts: fairmfu facts",
        ]
    return "\n\n".join(part for part in parts if part)


def _gains(needs: Sequence[RunNeeds]) -> str:
    """Return how many runs can get an MFU, and how many only a TGS."""
    rated = sum(run.gain == "tgs" for run in needs)
    whole = f"{count_noun(len(needs) - rated, 'run')} can get an MFU" if rated < len(needs) else ""
    return " and ".join(filter(None, [whole, f"{count_noun(rated, 'run')} a TGS" * bool(rated)]))


def _no_gain(needs: Sequence[RunNeeds]) -> str:
    reasons = [run.reason.partition(". ")[0].rstrip(".") for run in needs if not run.gain]
    if not reasons:
        return "" if needs else "Every run has an MFU."
    of_work = Counter(reason for reason in reasons if reason.startswith(OTHER_WORK))
    others = Counter(reason for reason in reasons if not reason.startswith(OTHER_WORK))
    found = []
    if others:
        runs = count_noun(others.total(), "run")
        found.append(wrapped(f"No fact gives {runs} an MFU: {_counted(others)}."))
    if of_work:
        runs = count_noun(of_work.total(), "run")
        found.append(wrapped(f"Only flops_per_token can give {runs} an MFU: {_counted(of_work)}."))
    return "\n".join(found)


OTHER_WORK: Final = "No MFU: "
"""Beginning of a reason against the formula, and not against given FLOPs."""


def _counted(reasons: Counter[str]) -> str:
    return "; ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common())


def _unlock_frame(needs: Sequence[RunNeeds]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "facts": ", ".join(step.facts) + (" (TGS alone)" if step.gain == "tgs" else ""),
                "runs": step.runs,
                "instead": "; ".join(
                    ALTERNATIVES[name] for name in step.facts if name in ALTERNATIVES
                )
                or None,
            }
            for step in unlocks(needs)
        ],
        schema_overrides={"instead": pl.String},
    )


def _folder_frame(needs: Sequence[RunNeeds]) -> pl.DataFrame:
    rows = [
        {"folder": folder, "runs": len(runs), "facts": ", ".join(facts)}
        for folder, facts, runs in facts_by_folder(needs)
    ]
    return pl.DataFrame(rows[:MAX_FOLDERS])


def _more_folders(needs: Sequence[RunNeeds]) -> str:
    more = len(list(facts_by_folder(needs))) - MAX_FOLDERS
    return f"{more:,} more rows. All: fairmfu missing --format json" if more > 0 else ""


def facts_template(
    needs: Sequence[RunNeeds], proposals: Mapping[str, Sequence[Proposal]], command: str
) -> str:
    """Return a commented TOML file with a table for each set of runs.

    proposals: by run id, of the logs' own figures. command: gives the facts of the file
    """
    runs = [run for run in needs if run.gain]
    lines = [
        f"# Facts that {count_noun(len(runs), 'run')} lack. Fill in the values, remove the '# ' "
        "before them, then:",
        f"#   {_comment(command)}",
        "# All facts with values and examples: fairmfu facts",
        "# For all logs of a folder, NAME = VALUE lines may also be in its facts.toml.",
    ]
    for folder, facts, of_folder in facts_by_folder(runs):
        for block, fitting in _blocks(of_folder, facts, proposals):
            keys = [run.run_id if run.shares_name else run.name for run in block]
            lines += [
                "",
                "[[facts]]",
                f"# {_comment(folder)}: {count_noun(len(block), 'run')}",
                f"runs = {json.dumps(keys, ensure_ascii=False)}",
                *map(_template_line, facts),
                *(f"#   {each} gives the logged figures" for each in fitting[:MAX_PROPOSALS]),
            ]
    return "\n".join(lines) + "\n"


WORK_FACTS: Final = {"model", "model_config", "seq_len"}
"""Facts that runs of several logs share only if something says so."""


def _blocks(
    runs: Iterable[RunNeeds], facts: Iterable[str], proposals: Mapping[str, Sequence[Proposal]]
) -> list[tuple[list[RunNeeds], list[str]]]:
    """Return sets of runs with shared values, and their common proposals.

    Runs share a model or a length if a proposal fits all of them; without proposals, if they are
    of one log. Other facts are those of a folder.
    """
    if WORK_FACTS.isdisjoint(facts):
        return [([*runs], [])]
    found: list[tuple[list[RunNeeds], list[str]]] = []
    of_log: dict[str, list[RunNeeds]] = {}
    for run in runs:
        own = [proposal.settings for proposal in proposals.get(run.run_id, ())]
        place = next((n for n, (_, fit) in enumerate(found) if {*own} & {*fit}), None)
        if place is not None:
            block, fit = found[place]
            found[place] = ([*block, run], [each for each in fit if each in own])
        elif own:
            found.append(([run], own))
        else:
            of_log.setdefault(run.name.partition("#")[0], []).append(run)
    return [*found, *((block, []) for block in of_log.values())]


def _template_line(name: str) -> str:
    """Return a commented line without a value, so that no example becomes a fact."""
    fact, value = FACT_NAMES[name], fact_example(name).partition("=")[2]
    if fact.kind not in ("int", "float", "bool"):
        value = json.dumps(value.strip('"'))
    values = f" ({', '.join(fact_values(name))})" if fact_values(name) else ""
    instead = f"; or {ALTERNATIVES[name]}" if name in ALTERNATIVES else ""
    condition = f"; {CONDITIONS[name]}" if name in CONDITIONS else ""
    return f"# {name} =  # such as {value}{values}: {fact.meaning}{instead}{condition}"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
