"""The files of paths as they stand, and of each what shows that it or what gives it facts changed.

A folder is listed once for all its files; beyond that a file costs one stat. Where a folder is as
it is remembered, its files are told all at once. Of an object store a listing tells all.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from functools import cached_property
from glob import glob, has_magic
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from ..core.errors import UnreadableSourceError, explain_read_error
from ..core.paths import (
    NOT_FOUND_MESSAGE,
    URL_SEPARATOR,
    ObjectStat,
    RemotePath,
    as_remote,
    cache_listing,
    list_folder,
    match_objects,
    parse_path,
    walk_objects,
)
from ..decode.line_reader import STDIN_PATH
from ..facts import facts as given
from ..formats.launch_view import Fact
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import LogFormat

NON_LOG_SUFFIXES: Final = frozenset(
    ending
    for kind in (
        ".toml .json .jsonl .yaml .yml .lock .cfg .md .html .csv .tsv",
        ".py .pyc .sh .ipynb .c .cc .cpp .cu .h .hpp .js .css .so .whl",
        ".pt .pth .safetensors .bin .ckpt .distcp .gguf .onnx .pdparams .model",
        ".npy .npz .pkl .pickle .parquet .arrow .feather .h5 .hdf5 .idx .tfrecord .msgpack",
        ".duckdb .db .sqlite .wandb .nsys-rep .ncu-rep",
        ".png .svg .jpg .jpeg .gif .webp .mp4 .wav .pdf",
    )
    for ending in kind.split()
)
"""Endings of what stands beside logs: settings and tables, code, weights (many GB each), data,
stores and traces, pictures. A folder's walk passes them over, but for LogFormat.file_names; a file
named on the command line is always read."""
TEXT_SUFFIXES: Final = frozenset([".json", ".jsonl", ".md", ".html", ".csv", ".tsv", ".ipynb"])
"""Those of them in which a log may stand after all: an issue, a page, a notebook, a table."""
BESIDE_LOGS: Final = re.compile(
    r".*config.*\.json|.*(?:tokens?|tokenizer|vocab|index|trainer_state|results)(?:_\w+|\.\w+)*\.json"
    r"|README.*|CHANGELOG.*|LICENSE.*",
    re.IGNORECASE,
)
"""Names of such files that frameworks and people put beside logs, and that are none."""
MAX_TOLD_NAMES: Final = 5
"""Names that are told of files that are passed over for them."""
COMPRESSED_SUFFIXES: Final = (".gz", ".zst")
"""Endings of what is read unpacked: before them stands what it is."""


STORE_SUFFIXES: Final = (".duckdb", ".duckdb.wal", ".parquet", ".lock")
"""Endings of files that no pattern means."""


class LogFile(NamedTuple):
    """One file that may be a log, as it stood when it was looked at.

    path: as it was given
    identity: its absolute path, or its address at an object store
    named: it was given by name, not come upon in a folder
    error: why it, or the folder that it names, could not be looked at
    """

    path: str
    identity: str
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    named: bool = True
    around: FolderFactFiles | None = None
    error: str = ""

    def beside(self, facts: Sequence[Fact], sidecar_files: Sequence[str]) -> FactFiles:
        """What could give it facts besides itself.

        facts: given for its path. named: files that its sidecars name.
        """
        around = self.around
        shared, own = (around.shared, around.of(self.identity)) if around else (NO_FACT_FILES, ())
        if not facts and not sidecar_files and not own:
            return shared
        marks = (*shared.marks, *own, *map(_mark, sidecar_files))
        return FactFiles(marks, "\n".join((short_signature((marks, facts)), *sidecar_files)))


FileStamp = tuple[str, int, int, int]
"""Name of a file, time of its last change, size and inode."""


class FactFiles(NamedTuple):
    """Files that could give facts to a log; `text` changes with them, and names some to look at.

    Its first line is their signature, empty where there are none; the others are paths of files
    that sidecars name: as long as those stay, they need not be opened to look at these.
    """

    marks: tuple[FileStamp, ...]
    text: str

    @property
    def newest_ns(self) -> int:
        """When one of the files was last written to; 0 where there are none."""
        return max((mark[1] for mark in self.marks), default=0)


NO_FACT_FILES: Final = FactFiles((), "")
_OWN: Final = f".{given.SIDECAR_NAME}"


class FolderFactFiles:
    """What stands in a folder that could give facts to the logs there."""

    def __init__(self, folder: str, names: Collection[str] | None) -> None:
        """`names`: all that the folder holds; None where it can't be listed."""
        self._folder, self._names = folder, names
        self.is_leaf = True  # until a folder is found there
        own = None if names is None else {name for name in names if name.endswith(_OWN)}
        self._own = own  # of most folders none

    @property
    def folder(self) -> str:
        """The folder's path."""
        return self._folder

    @cached_property
    def shared(self) -> FactFiles:
        """What could give facts to each of them."""
        files = given.shared_fact_files(parse_path(self._folder), self._names)
        marks = tuple(_mark(str(path)) for path in files)
        return FactFiles(marks, short_signature((marks, ()))) if marks else NO_FACT_FILES

    @property
    def alike(self) -> bool:
        """Whether nothing there gives facts to one log alone."""
        return self._own is not None and not self._own

    def of(self, log: str) -> tuple[FileStamp, ...]:
        """What could give facts to the log of that path alone."""
        if self.alike:
            return ()
        name = log.rpartition(os.sep)[2] + _OWN
        there = self._own is None or name in self._own
        return (_mark(os.path.join(self._folder, name)),) if there else ()  # noqa: PTH118 - cheap


FileColumns = tuple[Sequence[str], Sequence[int], Sequence[int], Sequence[int]]
"""Files in the order of their names: these, sizes, times of the last change, inodes."""


def folder_signature(files: FileColumns, shared_text: str) -> str:
    """Signature of the files of one folder.

    shared_text: the text of what stands beside them all.
    """
    names, *numbers = files
    said = hashlib.blake2b(os.fsencode("\0".join((shared_text, *names))), digest_size=16)
    for column in numbers:
        said.update(array("q", column).tobytes())
    return said.hexdigest()


def file_columns(log_files: Sequence[LogFile]) -> FileColumns:
    """Files that were found in one folder, in this order."""
    names = [found.identity.rpartition(os.sep)[2] for found in log_files]
    sizes, times = [found.size for found in log_files], [found.mtime_ns for found in log_files]
    return names, sizes, times, [found.inode for found in log_files]


def short_signature(value: object) -> str:
    """A short text that changes with `value`."""
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def _mark(path: str) -> FileStamp:
    """How a file stands; the name alone where it does not exist."""
    name = path.rpartition(os.sep)[2]
    try:
        seen = parse_path(path).stat() if URL_SEPARATOR in path else os.stat(path)  # noqa: PTH116 - of thousands
    except OSError:
        return name, 0, -1, 0
    return name, seen.st_mtime_ns, seen.st_size, seen.st_ino


def stat_file(path: Path) -> LogFile:
    """A file by its path, without what stands beside it. Raises OSError."""
    seen = path.stat()
    return LogFile(str(path), file_identity(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)


def is_missing_file(stored_path: str) -> bool:
    """Whether the file of this machine that a content was read from is there no more."""
    path = parse_path(stored_path)
    if path == STDIN_PATH or as_remote(path) is not None:
        return False
    try:
        return not path.exists()
    except OSError:  # who may not look does not know
        return False


def file_identity(path: Path) -> str:
    """A path that names one file from wherever it is given."""
    return str(path if path == STDIN_PATH else path.absolute())


class _Folder(NamedTuple):
    """A folder that a walk is in: as it was given, its absolute path, and what is left of it."""

    path: str
    identity: str
    around: FolderFactFiles
    left: Iterator[os.DirEntry[str]]


class FileWalk:
    """Finds the files of paths; hidden ones and other kinds are passed over in folders.

    A path that is not there and holds * ? or [ is a pattern, where ** goes through folders. What
    several folders or patterns hold is found once.
    """

    def __init__(
        self,
        formats: Iterable[LogFormat] = BUILT_IN_FORMATS,
        excluded_folders: Sequence[Path] = (),
        known_folders: Mapping[str, str] | None = None,
    ) -> None:
        """excluded_folders: folders within others that are not entered.

        known_folders: `folder_signature` of folders that hold no other folder, by absolute path.
        Those that are as remembered are in `whole`, and their files are not found: their paths, as
        given, are in `unchanged`.
        """
        self._remembered = known_folders or {}
        self.unchanged: list[str] = []
        self.unlisted: list[str] = []
        """Files of folders that may be logs, and are passed over for their names, as given."""
        self.whole: dict[str, str] = {}
        names = {translate(name) for f in formats for name in f.file_names}
        self._log_name = re.compile("|".join(sorted(names)) or "(?!)")
        self._left_out = {seen.st_ino: seen for seen in map(_stat, excluded_folders) if seen}
        self._never_in = tuple(f"{os.path.realpath(path)}{os.sep}" for path in excluded_folders)
        self._root = ""
        self._listed: dict[Path, FolderFactFiles] = {}
        self._found = set[str]()
        self._of_logs = set[str]()  # endings

    def of(self, path: Path) -> Iterator[LogFile]:
        """The files of one path, in the order of their names.

        Raises UnreadableSourceError for a path that is not there, or a folder without a log.
        """
        if path == STDIN_PATH:
            yield LogFile(str(path), str(path))
            return
        if (at_store := as_remote(path)) is not None:
            yield from self._at_store(at_store)
            return
        seen = _stat(path)
        if seen and stat.S_ISREG(seen.st_mode):
            one = stat_file(path)
            self._found.add(one.identity)
            yield one._replace(around=self._around(path.parent))
        elif seen and stat.S_ISDIR(seen.st_mode):
            yield from self._inside(path)
        elif not seen and has_magic(str(path)):
            yield from self._matching(path)
        elif seen:
            raise UnreadableSourceError(
                f"{path}: no regular file. What it gives goes through a pipe: … | fairmfu ingest -"
            )
        elif path.is_symlink():
            raise UnreadableSourceError(f"{path}: a link that leads nowhere, or in a circle.")
        else:
            raise UnreadableSourceError(f"{path}: no such file or folder.")

    def _matching(self, pattern: Path) -> Iterator[LogFile]:
        matches = sorted(glob(str(pattern), recursive=True))  # noqa: PTH207 - ~ and .. as they are
        if not matches:
            raise UnreadableSourceError(f"{pattern}: no file or folder matches.")
        matches = [
            m for m in matches if not m.endswith(STORE_SUFFIXES)
        ]  # in a folder that is meant
        for match in map(Path, matches):
            try:
                if file_identity(match) not in self._found:
                    yield from self.of(match)
            except UnreadableSourceError as error:
                yield LogFile(str(match), file_identity(match), error=str(error))

    def _around(self, folder: Path) -> FolderFactFiles:
        if folder not in self._listed:
            try:
                names = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone
            except OSError:
                names = None
            self._listed[folder] = FolderFactFiles(str(folder), names)
        return self._listed[folder]

    def _at_store(self, path: RemotePath) -> Iterator[LogFile]:
        """Files at an object store, which is asked for as few listings as can be."""
        path.require_bucket()
        try:
            entry = path.look()
            if entry.is_folder:
                yield from self._in_folder(path)
            else:
                yield self._object(path, entry, named=True)
        except FileNotFoundError as error:
            if not has_magic(path.url):
                raise UnreadableSourceError(f"{path}: {error.strerror}.") from error
            yield from self._fitting(path, str(error.strerror).removeprefix(NOT_FOUND_MESSAGE))
        except OSError as error:
            raise UnreadableSourceError(f"{path}: {error.strerror}.") from error

    def _fitting(self, pattern: RemotePath, why: str) -> Iterator[LogFile]:
        """why: besides, there is none of that very name."""
        folder, names = pattern.split_at_pattern()
        try:
            matches = sorted(match_objects(folder, names)) if names else [(folder, folder.look())]
        except OSError as error:
            raise UnreadableSourceError(f"{pattern}: {error.strerror}.") from error
        if not matches:
            raise UnreadableSourceError(f"{pattern}: no file or folder matches{why}.")
        for match, entry in matches:
            try:
                if entry.is_folder:
                    yield from self._in_folder(match)
                elif match.url not in self._found:
                    yield self._object(match, entry, named=True)
            except UnreadableSourceError as error:
                yield LogFile(match.url, match.url, error=str(error))

    def _in_folder(self, folder: RemotePath) -> Iterator[LogFile]:
        found = False
        try:
            cache_listing(folder)
            for path, entry in walk_objects(folder):
                if self._may_be_log(path.name):
                    found = True
                    if path.url not in self._found:
                        yield self._object(path, entry, named=False)
        except OSError as error:
            raise UnreadableSourceError(f"{folder}: {error.strerror}.") from error
        if not found:
            raise UnreadableSourceError(f"{folder}: the folder holds no log file.")

    def _object(self, path: RemotePath, entry: ObjectStat, *, named: bool) -> LogFile:
        self._found.add(path.url)
        around = self._around_object(path)
        return LogFile(path.url, path.url, *entry[:3], named=named, around=around)

    def _around_object(self, path: RemotePath) -> FolderFactFiles:
        """Where the folder may not be listed, nothing: asking for each name is told the same."""
        folder = path.parent
        if folder not in self._listed:
            try:
                names = frozenset(list_folder(path.folder))
            except OSError:
                names = frozenset()
            self._listed[folder] = FolderFactFiles(path.folder.url, names)
            self._listed[folder].is_leaf = False  # so that it is not remembered as a whole
        return self._listed[folder]

    def _inside(self, root: Path) -> Iterator[LogFile]:
        """All that may be logs; a file costs its stat and little more."""
        within: list[_Folder] = []
        told = len(self.unchanged)
        self._root = os.path.join(os.path.realpath(root), "")  # noqa: PTH118 - of / too
        unseen = self._enter(within, "" if root == Path() else str(root), file_identity(root))
        found = unseen is not None
        if unseen:
            yield unseen
        while within:
            folder = within[-1]
            for entry in folder.left:
                if entry.is_dir(follow_symlinks=False):
                    folder.around.is_leaf = False
                    if self._is_left_out(entry):
                        continue
                    if unseen := self._enter(within, _path(folder, entry), entry.path):
                        found = True
                        yield unseen
                    break  # what it holds comes first
                if self._is_wanted(folder.identity, entry) and (one := _seen(folder, entry)):
                    found = True
                    if one.identity not in self._found:
                        self._found.add(one.identity)
                        yield one
                else:
                    self._pass_over(folder, entry)
            else:
                within.pop()
        if not found and len(self.unchanged) == told:
            raise UnreadableSourceError(self._without_logs(root))

    def _without_logs(self, root: Path) -> str:
        names = ", ".join(sorted({Path(path).name for path in self.unlisted})[:MAX_TOLD_NAMES])
        why = f" Not opened for their names: {names}; give one by name." if names else ""
        return f"{root}: the folder holds no log file.{why}"

    def _enter(self, within: list[_Folder], path: str, whole: str) -> LogFile | None:
        """Put a folder at the end, with what may be of interest in it by name; or say why not.

        One that is as it is remembered is told already.
        """
        if self._is_unchanged(path, whole):
            return None
        try:
            with os.scandir(whole) as entries:
                every = sorted(entries, key=attrgetter("name"))
        except OSError as error:
            return _not_seen(path or ".", whole, error)
        around = FolderFactFiles(whole, frozenset([entry.name for entry in every]))
        shown = (entry for entry in every if entry.name[0] != ".")
        within.append(_Folder(path, whole, around, shown))
        return None

    def _is_unchanged(self, path: str, whole: str) -> bool:
        """Whether a folder is as it is remembered; its files are told then."""
        if (before := self._remembered.get(whole)) is None:
            return False
        try:
            around, files = self._listed_now(whole)
        except OSError:
            return False
        if (
            around is None
            or not around.alike
            or folder_signature(files, around.shared.text) != before
        ):
            return False
        here = os.path.join(whole, "")  # noqa: PTH118 - one of thousands
        paths = [here + name for name in files[0]]
        if not self._found.isdisjoint(paths):
            return False
        self._found.update(paths)
        self.whole[whole] = before
        given_in = os.path.join(path, "") if path else ""  # noqa: PTH118 - one of thousands
        self.unchanged += paths if path == whole else [given_in + name for name in files[0]]
        return True

    def _listed_now(self, folder: str) -> tuple[FolderFactFiles | None, FileColumns]:
        """The files of a folder that may be logs, all looked at at once. Raises OSError.

        Without what is around them where it holds folders that would have to be entered.
        """
        names, seen = list[str](), list[os.stat_result]()
        with _opened(folder) as number, os.scandir(number) as entries:
            every = sorted(entries, key=attrgetter("name"))
            for entry in every:
                name = entry.name
                if name[0] != "." and self._is_wanted(folder, entry) and entry.is_file():
                    names.append(name)
                    seen.append(entry.stat())
                elif name[0] != "." and entry.is_dir(follow_symlinks=False):
                    return None, ((), (), (), ())
        around = FolderFactFiles(folder, frozenset([entry.name for entry in every]))
        sizes, times = [at.st_size for at in seen], [at.st_mtime_ns for at in seen]
        return around, (names, sizes, times, [at.st_ino for at in seen])

    def _is_wanted(self, folder: str, entry: os.DirEntry[str]) -> bool:
        """Whether an entry may be a log, and no link to one that is found by its own name.

        Such as latest.log: of a link that moves on, each log would be another run of that name.
        """
        if not self._may_be_log(entry.name):
            return False
        return not (entry.is_symlink() and self._finds(os.path.join(folder, entry.name)))  # noqa: PTH118 - one of many

    def _finds(self, link: str) -> bool:
        """Whether what a link leads to stands in the folder that is walked, where it is found."""
        leads_to = os.path.realpath(link)
        if not leads_to.startswith(self._root) or leads_to.startswith(self._never_in):
            return False
        within = Path(leads_to.removeprefix(self._root))
        return self._may_be_log(within.name) and not any(part[0] == "." for part in within.parts)

    def _may_be_log(self, name: str) -> bool:
        ending = name[name.rfind(".") :]
        if ending in self._of_logs or self._log_name.match(name):
            return True
        if ending in COMPRESSED_SUFFIXES:
            return self._may_be_log(name.removesuffix(ending))
        if ending.lower() in NON_LOG_SUFFIXES:
            return False
        self._of_logs.add(ending)
        return True

    def _pass_over(self, folder: _Folder, entry: os.DirEntry[str]) -> None:
        """Remember a file that may hold a log, and has the name of none."""
        name = entry.name
        if name[name.rfind(".") :].lower() not in TEXT_SUFFIXES or BESIDE_LOGS.match(name):
            return
        if not self._may_be_log(name):
            self.unlisted.append(_path(folder, entry))

    def _is_left_out(self, entry: os.DirEntry[str]) -> bool:
        same = self._left_out.get(entry.inode())
        return same is not None and os.path.samestat(same, entry.stat())


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """A folder whose files are asked for by their names alone, which saves a part of each stat."""
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def _path(folder: _Folder, entry: os.DirEntry[str]) -> str:
    """The path of an entry, absolute or not as its folder was given."""
    if folder.path == folder.identity:
        return entry.path
    return os.path.join(folder.path, entry.name)  # noqa: PTH118 - one of thousands


def _seen(folder: _Folder, entry: os.DirEntry[str]) -> LogFile | None:
    """A file of a folder; None for what is none, or went since the folder was listed."""
    path = _path(folder, entry)
    try:
        if not entry.is_file():
            return None
        at = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return _not_seen(path, entry.path, error)
    return LogFile(
        path, entry.path, at.st_size, at.st_mtime_ns, at.st_ino, named=False, around=folder.around
    )


def _not_seen(path: str, whole: str, error: OSError) -> LogFile:
    return LogFile(path, whole, named=False, error=f"{path}: {explain_read_error(error)}")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
