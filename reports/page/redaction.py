"""Redaction for reports that leave the house: no secrets, names, hosts, addresses.

Logs print them in passing: a home folder, the host before each line of a launcher, a token given as
an argument. Secrets and names are recognised by their surroundings, or by their form, in all texts
of a report. Then every occurrence is replaced with a word, the same each time, so that the report
still shows which runs were of the same host. Numbers stay.

Only known forms are hidden. Other confidential text (a project's folder, a model's name) has no
form: look at the page before you send it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from ipaddress import IPv6Address
from typing import Any, Final

import polars as pl

from fairmfu.ingest.core.schema import EVENT_KINDS, FACT_NAMES, TABLES
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.formula import accelerators
from fairmfu.metrics.formula.model_shapes import model_names

from ..text.tabular import plural

REDACTED: Final = "names of users and hosts, addresses and secrets are replaced"
"""Note in a redacted report."""
SECRET, USER, HOST, ADDRESS, MAIL = "secret", "user", "host", "address", "mail"

_NAME: Final = r"[A-Za-z_][\w.-]*"
_KEY: Final = (
    r"(?:api[_-]?key|access[_-]?key|wandb[_-]?key|auth[_-]?token|token|secret|credential|signature)"
)
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
FORMS: Final[tuple[tuple[str, str], ...]] = (
    # secrets by their vendors' formats
    (SECRET, r"\b((?:hf|gh[pousr])_[A-Za-z0-9]{16,}|(?:glpat|xox[abprs])-[\w-]{16,})"),
    (SECRET, r"\b(github_pat_\w{20,}|sk-[A-Za-z0-9_-]{20,}|A[KS]IA[0-9A-Z]{16})\b"),
    (SECRET, r"\b(AIza[\w-]{35}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"),
    (SECRET, r"-----BEGIN [A-Z ]*PRIVATE KEY-----([^-]*)"),
    # and by the text before them; WANDB_API_KEY=…, --hf-token …, "password": "…"
    (SECRET, rf"(?i)(?:\b|_){_KEY}[\"']?\s*[=:]\s*[\"']?(?=[^\s\"']*\d)([^\s\"',;&]{{8,}})"),
    (SECRET, rf"(?i)--[\w-]*{_KEY}\s+[\"']?(?=[^\s\"']*\d)([^\s\"',;&]{{8,}})"),
    (SECRET, r"(?i)(?:\b|_)passw(?:or)?d[\"']?\s*[=:]\s*[\"']?([^\s\"',;&]{4,})"),
    (SECRET, r"(?i)--[\w-]*passw(?:or)?d\s+[\"']?([^\s\"',;&]{4,})"),
    (SECRET, r"(?i)\b(?:bearer|basic)\s+(?=\S*\d)([\w.~+/=-]{16,})"),
    (SECRET, r"://[^\s/:@]*:([^\s/@]+)@"),
    (MAIL, r"(?<![\w.+:/-])([\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})\b"),
    (USER, r"(?i)[/\\](?:home|users)[/\\]{1,2}([\w][\w.-]*)"),
    (USER, r"(?i)(?:\blogged in as:?|(?:\b|_)user(?:name)?[\"']?\s*[=:]|\blogname=)\s*[\"']?"
           rf"({_NAME})"),
    # hosts: NCCL's host:pid:tid, pdsh's prefix of a line, arguments of launchers
    (HOST, rf"^\s*({_NAME}):\d+:\d+ \["),
    (HOST, rf"^({_NAME}): +\[?\d{{4}}-\d\d"),
    (HOST, r"(?i)\b(?:master_addr|hostname|node_?name|rdzv_endpoint)[\"']?[\s.]*[=: ]\s*[\"']?"
           r"((?=[\w.-]*\d)[A-Za-z][\w.-]*)"),
    (HOST, r"(?i)(?:\b|_)node_?list[\"']?\s*[=:]\s*[\"']?([A-Za-z][\w.,\[\]-]*)"),
    (HOST, r"(?im)^\s*host\s*:\s*([A-Za-z][\w-]*(?:\.[\w-]+)+)"),
    (HOST, rf"\b({_NAME}\.(?:internal|local|localdomain|lan|corp|cluster|svc))\b"),
    (HOST, r"\b(ip-\d+-\d+-\d+-\d+(?:\.[\w-]+)*)"),
    (ADDRESS, rf"(?i)(?<!version )(?<!cudnn )(?<!nccl )(?<![\w.])({_OCTET}(?:\.{_OCTET}){{3}})"
              r"(?![\w.]*\w)"),
    (ADDRESS, r"(?i)(?<![\w:.])([0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7})(?![\w:])"),
)  # fmt: skip
"""Kinds of hidden text with their forms: the group is replaced."""

GENERIC_NAMES: Final = frozenset(
    {
        *("root", "user", "users", "username", "admin", "ubuntu", "runner", "jovyan", "nobody"),
        *("none", "null", "true", "false", "name", "shared", "public", "data", "home"),
        *("localhost", "127.0.0.1", "0.0.0.0", "::1", "master", "worker", "static", "default"),  # noqa: S104
        *("torchtitan", "deepspeed", "xtuner", "megatron", "llama", "torch", "python", "redacted"),
    }
)
"""Names that identify nobody."""
_OWN: Final = re.compile(rf"(?:{SECRET}|{USER}|{HOST}|{ADDRESS}|{MAIL})-\d+")
_LIKE_RANKS: Final = re.compile(r"(?:rank|default|trainer|local|node|gpu|worker|stage)[_-]?\d*")
"""Names that launchers give to any process or machine."""
MAX_NODES_PER_RANGE: Final = 10_000
"""Most nodes of one range in a list of nodes."""
MIN_NAME_LENGTH: Final = 4
"""Fewest characters of a name to replace everywhere, and not only in its form."""


class Redaction:
    """Confidential texts found in reports, and the words in their place.

    Reports that are sent together share one redaction, so that a name is the same word in all.
    """

    def __init__(self, value: object = ()) -> None:
        """Start with a value; value: as for `scan`."""
        self.counts = Counter[str]()
        self._words: dict[str, str] = {}
        self._everywhere = re.compile("(?!)")
        self.scan(value)

    def scan(self, value: object) -> None:
        """Find confidential text in a value that will be reported; any input of `redact`."""
        before = len(self._words)
        for text in _texts(value):
            for kind, form in _COMPILED:
                for match in form.finditer(text):
                    self._hide(kind, match[1])
        if len(self._words) == before:
            return
        own = _own_words()
        everywhere = (n for n in self._words if len(n) >= MIN_NAME_LENGTH and n.lower() not in own)
        names = "|".join(map(re.escape, sorted(everywhere, key=len, reverse=True)))
        self._everywhere = re.compile(rf"(?<![A-Za-z0-9])(?:{names or '(?!)'})(?![A-Za-z0-9])")

    def _hide(self, kind: str, text: str) -> None:
        """Assign a word to a name, and to each node of a list of nodes."""
        if text in self._words or not _somebody(kind, text):
            return
        short = _short(text) if kind == HOST else text
        if short not in self._words:
            self.counts[kind] += 1
            self._words[short] = f"{kind}-{self.counts[kind]}"
        self._words[text] = self._words[short]
        for node in _nodes(text) if kind == HOST else ():
            self._hide(kind, node)

    def redact(self, value: Any) -> Any:  # noqa: ANN401 - whatever a report holds
        """Return the value with all confidential text replaced.

        A text, or all texts of frames, nested mappings and sequences.
        """
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, pl.DataFrame):
            return value.with_columns(self._column(value[name]) for name in _worded(value))
        if isinstance(value, Mapping):
            return {self.redact(key): self.redact(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return value._make(map(self.redact, value))  # type: ignore[attr-defined]
        if isinstance(value, tuple):
            return tuple(map(self.redact, value))
        return [*map(self.redact, value)] if isinstance(value, Sequence) else value

    def _column(self, column: pl.Series) -> pl.Series:
        if column.dtype == pl.String:
            return column.replace({text: self.redact(text) for text in _once(column)})
        return pl.Series(column.name, self.redact(column.to_list()), column.dtype)

    def _text(self, text: str) -> str:
        if not self._words:
            return text
        text = self._everywhere.sub(lambda match: self._words[match[0]], text)
        for _, form in _COMPILED:
            text = form.sub(self._in_its_form, text)
        return text

    def _in_its_form(self, match: re.Match[str]) -> str:
        begin, end = (place - match.start() for place in match.span(1))
        return match[0][:begin] + self._words.get(match[1], match[1]) + match[0][end:]

    def __str__(self) -> str:
        each = (f"{count} {plural(kind, count)}" for kind, count in self.counts.items())
        return f"hidden: {', '.join(each) or 'nothing was found'}"


_COMPILED: Final = [(kind, re.compile(form)) for kind, form in FORMS]


@cache
def _own_words() -> frozenset[str]:
    """Return words of fairmfu, models and devices.

    A user with such a name is hidden in paths alone.
    """
    names = [*METRICS, *FACT_NAMES, *EVENT_KINDS, *TABLES, *(c for t in TABLES.values() for c in t)]
    names += [choice for known in FACT_NAMES.values() for choice in known.choices]
    names += [word for name in model_names() for word in re.split(r"[-.]", name)]
    names += [word for name in accelerators.accelerator_names() for word in name.split()]
    return frozenset(name.lower() for name in (*names, *REPORT_WORDS))


REPORT_WORDS: Final = (
    *("runs", "charts", "groups", "series", "changes", "notes", "tonight", "points", "sources"),
    *("steady", "text", "logs", "value", "work", "label", "says", "facts", "steps", "missing"),
    *("audit", "windows", "bridges", "metrics", "comparison", "warnings", "title"),
)
"""Words for the parts of reports."""


def _somebody(kind: str, text: str) -> bool:
    """Return whether a name identifies a person, or an address a machine."""
    name = text.lower()
    if name in GENERIC_NAMES or _OWN.fullmatch(name):
        return False
    if kind == SECRET:  # neither a number nor stars
        return any(character.isalpha() for character in name.strip("*x.<>[]e+-"))
    if kind == ADDRESS and ":" in name:  # not a time of day
        with suppress(ValueError):
            return bool(IPv6Address(name))
        return False
    return not _LIKE_RANKS.fullmatch(name)


def _nodes(listed: str) -> list[str]:
    """Return the nodes of SLURM's `gpu[01-03,07],login1`; empty for other text."""
    if "," not in listed and "[" not in listed:
        return []
    found = []
    for name, ranges, rest in re.findall(r"([\w.-]+)(?:\[([\d,-]+)\])?([\w.-]*)", listed):
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1) if first.isdigit() else ()
            each = [f"{name}{n:0{len(first)}}{rest}" for n in numbers[:MAX_NODES_PER_RANGE]]
            found += each or [f"{name}{part}{rest}"]
    return found


def _short(host: str) -> str:
    """Return a host without its domain, as other lines may print the name.

    Only if the first label has a digit: others may be common words.
    """
    label, _, domain = host.partition(".")
    return label if domain and any(map(str.isdigit, label)) else host


def _texts(value: object) -> Iterator[str]:
    """Yield all texts of frames, sequences, and nested mappings with their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, pl.DataFrame):
        yield from _each(_once(value[name]) for name in _worded(value))
    elif isinstance(value, Mapping):
        yield from _each((*value, *value.values()))
    elif isinstance(value, Sequence):
        yield from _each(value)


def _each(items: Iterable[object]) -> Iterator[str]:
    for item in items:
        yield from _texts(item)


def _once(column: pl.Series) -> list[Any]:
    """Return the values of a column; texts, which repeat often, once each."""
    texts = column.dtype == pl.String
    return (column.unique(maintain_order=True) if texts else column).to_list()


def _worded(frame: pl.DataFrame) -> list[str]:
    """Return the columns with texts, also in lists or structs."""
    return [name for name, dtype in frame.schema.items() if "String" in str(dtype)]
