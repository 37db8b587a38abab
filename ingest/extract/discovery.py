"""Files under paths, with signatures of the logs and their fact files.

A folder is listed once for all its files; beyond that a file costs one stat. An unchanged folder is
recognised as a whole. At an object store one listing gives all properties.
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
from ..core.messages import UNREADABLE_FILE
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
from ..facts.companion_files import shared_fact_files
from ..formats.launch_view import Fact
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import LogFormat
from .messages import (
    ACCESS_DENIED,
    BROKEN_LINK,
    NO_LOG_IN_FOLDER,
    NO_MATCH,
    NO_REGULAR_FILE,
    PATH_MISSING,
)

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
"""Suffixes of files next to logs: settings and tables, code, weights (many GB each), data, stores
and traces, pictures. Walks skip them, except for LogFormat.file_names; a file named on the command
line is always read.
"""
TEXT_SUFFIXES: Final = frozenset([".json", ".jsonl", ".md", ".html", ".csv", ".tsv", ".ipynb"])
"""Suffixes among these that may contain a log after all: an issue, a page, a notebook, a table."""
BESIDE_LOGS: Final = re.compile(
    r".*config.*\.json|.*(?:tokens?|tokenizer|vocab|index|trainer_state|results)(?:_\w+|\.\w+)*\.json"
    r"|.*(?:power|smi)\.csv|README.*|CHANGELOG.*|LICENSE.*",
    re.IGNORECASE,
)
"""Names of text files that frameworks and people put next to logs: never logs."""
MAX_TOLD_NAMES: Final = 5
"""Limit of names in the message about files skipped for their names."""
COMPRESSED_SUFFIXES: Final = (".gz", ".zst")
"""Suffixes of compressed files; the suffix before gives the kind of file."""


STORE_SUFFIXES: Final = (".duckdb", ".duckdb.wal", ".parquet", ".lock")
"""Suffixes of store files, which no pattern matches."""


class LogFile(NamedTuple):
    """File that may be a log, with its state at discovery.

    path: as given
    identity: absolute path, or address at an object store
    size [bytes], mtime_ns, inode: from stat
    named: True if given by name, False if found in a folder
    around: fact files of its folder
    error: of a file or folder that could not be read
    """

    path: str
    identity: str
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    named: bool = True
    around: FolderFactFiles | None = None
    error: UnreadableSourceError | None = None

    def beside(self, facts: Sequence[Fact], sidecar_files: Sequence[str]) -> FactFiles:
        """Return all files with possible facts for this log.

        facts: given for the path. sidecar_files: files named by the log's sidecars.
        """
        around = self.around
        shared, own = (around.shared, around.of(self.identity)) if around else (NO_FACT_FILES, ())
        if not facts and not sidecar_files and not own:
            return shared
        marks = (*shared.marks, *own, *map(_mark, sidecar_files))
        return FactFiles(marks, "\n".join((short_signature((marks, facts)), *sidecar_files)))


FileStamp = tuple[str, int, int, int]
"""File name, modification time [ns], size [bytes] and inode."""


class FactFiles(NamedTuple):
    """Files that could give facts to a log; `text` changes with these files.

    First line of `text`: signature, empty without files. Further lines: paths of files named by
    sidecars. While the signature is unchanged, those paths are known without opening the sidecars.
    """

    marks: tuple[FileStamp, ...]
    text: str

    @property
    def newest_ns(self) -> int:
        """Latest modification time [ns], 0 without files."""
        return max((mark[1] for mark in self.marks), default=0)


NO_FACT_FILES: Final = FactFiles((), "")
_OWN: Final = f".{given.SIDECAR_NAME}"


class FolderFactFiles:
    """Fact files of the logs in one folder."""

    def __init__(self, folder: str, names: Collection[str] | None) -> None:
        """Find sidecars of single logs; names: all in the folder, None if unlistable."""
        self._folder, self._names = folder, names
        self.is_leaf = True  # until a walk finds a subfolder
        own = None if names is None else {name for name in names if name.endswith(_OWN)}
        self._own = own  # empty for most folders

    @property
    def folder(self) -> str:
        """Path of the folder."""
        return self._folder

    @cached_property
    def shared(self) -> FactFiles:
        """Fact files shared by all logs of the folder."""
        files = shared_fact_files(parse_path(self._folder), self._names)
        marks = tuple(_mark(str(path)) for path in files)
        return FactFiles(marks, short_signature((marks, ()))) if marks else NO_FACT_FILES

    @property
    def alike(self) -> bool:
        """True if no file in the folder gives facts to a single log."""
        return self._own is not None and not self._own

    def of(self, log: str) -> tuple[FileStamp, ...]:
        """Return the stamp of the sidecar of this log alone, if any."""
        if self.alike:
            return ()
        name = log.rpartition(os.sep)[2] + _OWN
        there = self._own is None or name in self._own
        return (_mark(os.path.join(self._folder, name)),) if there else ()  # noqa: PTH118 - cheap


FileColumns = tuple[Sequence[str], Sequence[int], Sequence[int], Sequence[int]]
"""Files in name order: names, sizes [bytes], modification times [ns], inodes."""


def folder_signature(files: FileColumns, shared_text: str) -> str:
    """Return the signature of the files of one folder.

    shared_text: `FactFiles.text` of their shared fact files.
    """
    names, *numbers = files
    digest = hashlib.blake2b(os.fsencode("\0".join((shared_text, *names))), digest_size=16)
    for column in numbers:
        digest.update(array("q", column).tobytes())
    return digest.hexdigest()


def file_columns(log_files: Sequence[LogFile]) -> FileColumns:
    """Return files of one folder as columns, in this order."""
    names = [file.identity.rpartition(os.sep)[2] for file in log_files]
    sizes, times = [file.size for file in log_files], [file.mtime_ns for file in log_files]
    return names, sizes, times, [file.inode for file in log_files]


def short_signature(value: object) -> str:
    """Return a short text that changes with `value`."""
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def _mark(path: str) -> FileStamp:
    """Return the stamp of a file; size -1 if missing."""
    name = path.rpartition(os.sep)[2]
    try:
        seen = parse_path(path).stat() if URL_SEPARATOR in path else os.stat(path)  # noqa: PTH116 - of thousands
    except OSError:
        return name, 0, -1, 0
    return name, seen.st_mtime_ns, seen.st_size, seen.st_ino


def stat_file(path: Path) -> LogFile:
    """Return a file by its path, without its fact files. Raises OSError."""
    seen = path.stat()
    return LogFile(str(path), file_identity(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)


def is_missing_file(stored_path: str) -> bool:
    """Return whether a stored local path no longer exists."""
    path = parse_path(stored_path)
    if path == STDIN_PATH or as_remote(path) is not None:
        return False
    try:
        return not path.exists()
    except OSError:  # no permission: unknown, so not missing
        return False


def file_identity(path: Path) -> str:
    """Return a path that names the same file from any folder."""
    return str(path if path == STDIN_PATH else path.absolute())


class _Folder(NamedTuple):
    """Folder of a walk: path as given, absolute path, and remaining entries."""

    path: str
    identity: str
    around: FolderFactFiles
    left: Iterator[os.DirEntry[str]]


class FileWalk:
    """Search for logs under paths; skips hidden files and other kinds inside folders.

    A path that does not exist and contains * ? or [ is a pattern, where ** matches folders. A file
    under several paths is found once.
    """

    def __init__(
        self,
        formats: Iterable[LogFormat] = BUILT_IN_FORMATS,
        excluded_folders: Sequence[Path] = (),
        known_folders: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a walk.

        formats: source of file names that are logs despite their suffix.
        excluded_folders: folders not to enter.
        known_folders: `folder_signature` by absolute path, of folders without subfolders. Unchanged
        ones are collected in `whole`, and the paths of their files, as given, in `unchanged`; their
        files are not yielded.
        """
        self._remembered = known_folders or {}
        self.unchanged: list[str] = []
        self.unlisted: list[str] = []
        """Possible logs skipped for their names, as given."""
        self.whole: dict[str, str] = {}
        formats = tuple(formats)
        self._without_log = [name for f in formats for name in f.names_without_log]
        self._results: dict[str, LogFile] = {}
        names = {translate(name) for f in formats for name in f.file_names}
        self._log_name = re.compile("|".join(sorted(names)) or "(?!)")
        self._left_out = {seen.st_ino: seen for seen in map(_stat, excluded_folders) if seen}
        self._never_in = tuple(f"{os.path.realpath(path)}{os.sep}" for path in excluded_folders)
        self._root = ""
        self._listed: dict[Path, FolderFactFiles] = {}
        self._found = set[str]()
        self._of_logs = set[str]()  # suffixes

    def of(self, path: Path) -> Iterator[LogFile]:
        """Yield the files of one path, in name order.

        Raises UnreadableSourceError for a missing path, or a folder without a log.
        """
        if path == STDIN_PATH:
            yield LogFile(str(path), str(path))
            return
        if (at_store := as_remote(path)) is not None:
            yield from self._at_store(at_store)
            return
        seen = _stat(path)
        if seen and stat.S_ISREG(seen.st_mode):
            log_file = stat_file(path)
            self._found.add(log_file.identity)
            yield log_file._replace(around=self._around(path.parent))
        elif seen and stat.S_ISDIR(seen.st_mode):
            yield from self._inside(path)
        elif not seen and has_magic(str(path)):
            yield from self._matching(path)
        elif seen:
            raise NO_REGULAR_FILE(path=path)
        elif path.is_symlink():
            raise BROKEN_LINK(path=path)
        else:
            raise PATH_MISSING(path=path, why=NOT_FOUND_MESSAGE)

    def _matching(self, pattern: Path) -> Iterator[LogFile]:
        matches = sorted(glob(str(pattern), recursive=True))  # noqa: PTH207 - ~ and .. as they are
        if not matches:
            raise NO_MATCH(pattern=pattern, detail="")
        matches = [
            m for m in matches if not m.endswith(STORE_SUFFIXES)
        ]  # a pattern names them only through their folder
        for match in map(Path, matches):
            try:
                if file_identity(match) not in self._found:
                    yield from self.of(match)
            except UnreadableSourceError as error:
                yield LogFile(str(match), file_identity(match), error=error)

    def _around(self, folder: Path) -> FolderFactFiles:
        if folder not in self._listed:
            try:
                names = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone
            except OSError:
                names = None
            self._listed[folder] = FolderFactFiles(str(folder), names)
        return self._listed[folder]

    def _at_store(self, path: RemotePath) -> Iterator[LogFile]:
        """Yield the files at an object store, with as few listings as possible."""
        path.require_bucket()
        try:
            entry = path.look()
            if entry.is_folder:
                yield from self._in_folder(path)
            else:
                yield self._object(path, entry, named=True)
        except FileNotFoundError as error:
            if not has_magic(path.url):
                raise PATH_MISSING(path=path, why=error.strerror) from error
            yield from self._fitting(path, str(error.strerror).removeprefix(NOT_FOUND_MESSAGE))
        except OSError as error:
            raise ACCESS_DENIED(path=path, why=error.strerror) from error

    def _fitting(self, pattern: RemotePath, why: str) -> Iterator[LogFile]:
        """Yield the matches of a pattern; why: end of the message if there is no match."""
        folder, names = pattern.split_at_pattern()
        try:
            matches = sorted(match_objects(folder, names)) if names else [(folder, folder.look())]
        except OSError as error:
            raise ACCESS_DENIED(path=pattern, why=error.strerror) from error
        if not matches:
            raise NO_MATCH(pattern=pattern, detail=why)
        for match, entry in matches:
            try:
                if entry.is_folder:
                    yield from self._in_folder(match)
                elif match.url not in self._found:
                    yield self._object(match, entry, named=True)
            except UnreadableSourceError as error:
                yield LogFile(match.url, match.url, error=error)

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
            raise ACCESS_DENIED(path=folder, why=error.strerror) from error
        if not found:
            raise NO_LOG_IN_FOLDER(folder=folder, hint="")

    def _object(self, path: RemotePath, entry: ObjectStat, *, named: bool) -> LogFile:
        self._found.add(path.url)
        around = self._around_object(path)
        return LogFile(path.url, path.url, *entry[:3], named=named, around=around)

    def _around_object(self, path: RemotePath) -> FolderFactFiles:
        """Return the fact files of an object's folder; none for an unlistable folder.

        Requests for single names would be refused in the same way.
        """
        folder = path.parent
        if folder not in self._listed:
            try:
                names = frozenset(list_folder(path.folder))
            except OSError:
                names = frozenset()
            self._listed[folder] = FolderFactFiles(path.folder.url, names)
            self._listed[folder].is_leaf = False  # never remember it as a whole
        return self._listed[folder]

    def _inside(self, root: Path) -> Iterator[LogFile]:
        """Yield all possible logs under a folder; a file costs little more than its stat."""
        within: list[_Folder] = []
        unchanged_before = len(self.unchanged)
        self._results.clear()
        self._root = os.path.join(os.path.realpath(root), "")  # noqa: PTH118 - of / too
        unreadable = self._enter(within, "" if root == Path() else str(root), file_identity(root))
        found = unreadable is not None
        if unreadable:
            yield unreadable
        while within:
            folder = within[-1]
            for entry in folder.left:
                if entry.is_dir(follow_symlinks=False):
                    folder.around.is_leaf = False
                    if self._is_left_out(entry):
                        continue
                    if unreadable := self._enter(within, _path(folder, entry), entry.path):
                        found = True
                        yield unreadable
                    break  # its contents first
                if self._is_wanted(folder.identity, entry) and (log_file := _seen(folder, entry)):
                    found = True
                    if log_file.identity not in self._found:
                        self._found.add(log_file.identity)
                        yield log_file
                else:
                    self._pass_over(folder, entry)
            else:
                within.pop()
        if not found and len(self.unchanged) == unchanged_before:
            yield from self._results_of(root)

    def _results_of(self, root: Path) -> Iterator[LogFile]:
        """Yield the results in a folder without a log."""
        if not self._results:
            raise NO_LOG_IN_FOLDER(folder=root, hint=self._skipped_names())
        yield from self._results.values()

    def _skipped_names(self) -> str:
        names = ", ".join(sorted({Path(path).name for path in self.unlisted})[:MAX_TOLD_NAMES])
        return f" Skipped by file name: {names}. To read one, give its path." if names else ""

    def _enter(self, within: list[_Folder], path: str, whole: str) -> LogFile | None:
        """Push a folder with all visible entries; return an error if unreadable.

        An unchanged folder is not pushed: `unchanged` has the files already.
        """
        if self._is_unchanged(path, whole):
            return None
        try:
            with os.scandir(whole) as entries:
                by_name = sorted(entries, key=attrgetter("name"))
        except OSError as error:
            return _not_seen(path or ".", whole, error)
        around = FolderFactFiles(whole, frozenset([entry.name for entry in by_name]))
        shown = (entry for entry in by_name if entry.name[0] != ".")
        within.append(_Folder(path, whole, around, shown))
        return None

    def _is_unchanged(self, path: str, whole: str) -> bool:
        """Return whether a folder is as remembered; if so, add its files to `unchanged`."""
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
        """Return the fact files and the possible logs of a folder. Raises OSError.

        The fact files are None if the folder has a subfolder to enter.
        """
        names, seen = list[str](), list[os.stat_result]()
        with _opened(folder) as number, os.scandir(number) as entries:
            by_name = sorted(entries, key=attrgetter("name"))
            for entry in by_name:
                name = entry.name
                if name[0] != "." and self._is_wanted(folder, entry) and entry.is_file():
                    names.append(name)
                    seen.append(entry.stat())
                elif name[0] != "." and entry.is_dir(follow_symlinks=False):
                    return None, ((), (), (), ())
        around = FolderFactFiles(folder, frozenset([entry.name for entry in by_name]))
        sizes, times = [status.st_size for status in seen], [status.st_mtime_ns for status in seen]
        return around, (names, sizes, times, [status.st_ino for status in seen])

    def _is_wanted(self, folder: str, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry may be a log, and no link to a log of this walk.

        A link such as latest.log moves on: each log would be another run of that name.
        """
        if not self._may_be_log(entry.name):
            return False
        return not (entry.is_symlink() and self._finds(os.path.join(folder, entry.name)))  # noqa: PTH118 - one of many

    def _finds(self, link: str) -> bool:
        """Return whether this walk finds the target of a link by its own name."""
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
        """Remember a skipped file that may contain a log, or the results of a run."""
        name = entry.name
        if name in self._without_log:
            self._keep_results(folder, entry)
        if name[name.rfind(".") :].lower() not in TEXT_SUFFIXES or BESIDE_LOGS.match(name):
            return
        if not self._may_be_log(name):
            self.unlisted.append(_path(folder, entry))

    def _keep_results(self, folder: _Folder, entry: os.DirEntry[str]) -> None:
        """Keep the file of a folder's results, for a walk without a log."""
        before = self._results.get(folder.identity)
        known = (
            self._without_log.index(Path(before.path).name) if before else len(self._without_log)
        )
        if self._without_log.index(entry.name) < known and (found := _seen(folder, entry)):
            self._results[folder.identity] = found
            folder.around.is_leaf = False  # never remember it as a whole

    def _is_left_out(self, entry: os.DirEntry[str]) -> bool:
        same = self._left_out.get(entry.inode())
        return same is not None and os.path.samestat(same, entry.stat())


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open a folder, so that stats by name alone cost less."""
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def _path(folder: _Folder, entry: os.DirEntry[str]) -> str:
    """Return the path of an entry, relative if its folder was given so."""
    if folder.path == folder.identity:
        return entry.path
    return os.path.join(folder.path, entry.name)  # noqa: PTH118 - one of thousands


def _seen(folder: _Folder, entry: os.DirEntry[str]) -> LogFile | None:
    """Return a file of a folder, None if not regular or deleted since the listing."""
    path = _path(folder, entry)
    try:
        if not entry.is_file():
            return None
        status = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return _not_seen(path, entry.path, error)
    return LogFile(
        path,
        entry.path,
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
        named=False,
        around=folder.around,
    )


def _not_seen(path: str, whole: str, error: OSError) -> LogFile:
    unreadable = UNREADABLE_FILE(path=path, why=explain_read_error(error))
    return LogFile(path, whole, named=False, error=unreadable)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
