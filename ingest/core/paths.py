"""Paths of logs: on this machine, or at an object store through fsspec.

    run.log, /data/logs      pathlib.Path
    s3://bucket/logs         RemotePath, with the methods of pathlib.Path used for logs and
                             facts; gs://, az:// and every other protocol of fsspec

A store gets few requests: one listing covers a folder, or a whole tree, and one request reads a
small object. Every error of a store's library becomes an OSError or UnreadableSourceError here,
with the reason and the remedy.
"""

from __future__ import annotations

import errno
import io
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from glob import has_magic
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple, TypeVar, cast

from .errors import ErrorKind, FairmfuError, UnreadableSourceError
from .messages import (
    BUCKET_PATTERN,
    CONNECTION_LOST,
    NO_CREDENTIALS,
    OBJECT_CUT_OFF,
    OBJECT_OVERWRITTEN,
    OBJECT_STORE_BUSY,
    OBJECT_STORE_FAILED,
    OBJECT_STORE_UNREACHABLE,
    PROTOCOL_PACKAGE_MISSING,
    S3_EXTRA_MISSING,
)

URL_SEPARATOR: Final = "://"
"""Marks the address of an object. No path contains "://": pathlib makes one slash of two."""
BUCKET_PLACEHOLDER_PARTS: Final = ("s3:", "", "bucket")
"""First parts of an address, split at slashes."""
LOCAL_PROTOCOLS: Final = ("file", "local")

S3_PREFIXES: Final = ("s3://", "s3a://")

FILESYSTEM_OPTIONS: Final[Mapping[str, Any]] = {"use_listings_cache": False}
"""Options for every object store. A cached listing would hide new objects."""
S3_OPTIONS: Final[Mapping[str, Any]] = {"max_concurrency": 1}
"""With more than 1, s3fs asks for the size of an object first, and joins parts of two versions."""

OBJECT_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of an object per request. One request reads a smaller object."""


def parse_path(text: str) -> Path:
    """Return the path named by a text: a RemotePath for an object store.

    Raises UnreadableSourceError if no package knows the store, or if setting it up fails.
    """
    if URL_SEPARATOR not in text:
        return Path(text)
    protocol, _, rest = text.partition(URL_SEPARATOR)
    return Path(rest) if protocol in LOCAL_PROTOCOLS else _as_path(_remote(text))


def as_remote(path: Path) -> RemotePath | None:
    """Return a path of an object store as a RemotePath.

    None for a path of this machine.
    """
    at: object = path
    return at if isinstance(at, RemotePath) else None


def _as_path(path: RemotePath) -> Path:
    """Return a RemotePath typed as Path, for callers limited to shared methods."""
    return cast("Path", path)


def _remote(text: str) -> RemotePath:
    with translated_store_errors(text):
        store, name = open_filesystem(text)
        return RemotePath(str(store.unstrip_protocol(name.rstrip("/"))))


def open_filesystem(url: str, **option_overrides: Any) -> tuple[Any, str]:  # noqa: ANN401 - fsspec's options
    """Return fsspec's file system of an address, and the name in it.

    Raises ImportError, ValueError.
    """
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    options = (
        {**FILESYSTEM_OPTIONS, **S3_OPTIONS} if url.startswith(S3_PREFIXES) else FILESYSTEM_OPTIONS
    )
    store, name = url_to_fs(url, **{**options, **option_overrides})
    return store, str(name)


# -- listings ------------------------------------------------------------------------------------


class ObjectStat(NamedTuple):
    """An object or a folder in a listing, with the names of os.stat_result.

    st_mtime_ns: in whole seconds, the precision of some requests. st_ino: a number made from the
    ETag or version, which changes with the content; 0 if the store gives neither.
    """

    st_size: int = 0
    st_mtime_ns: int = 0
    st_ino: int = 0
    is_folder: bool = False


FolderContents = Mapping[str, ObjectStat]
"""Entries of a folder, by name."""

MTIME_KEYS: Final = ("LastModified", "last_modified", "updated", "mtime", "created")
VERSION_KEYS: Final = ("ETag", "etag", "generation", "version_id", "md5")
"""Keys of S3, Azure, Google and others for the write time and the version of an object."""

StoreAnswer = TypeVar("StoreAnswer")
MAX_PARALLEL_REQUESTS: Final = 16
"""Requests for small objects at the same time."""
MAX_CACHED_TEXT_BYTES: Final = 64 * 1024
MAX_CACHED_TEXTS: Final = 256
"""Texts near logs that are requested once: all logs of a folder share a sidecar."""


@dataclass(slots=True)
class _Known:
    """Cached answers of stores: listings, short texts, and objects to be read next."""

    folders: dict[str, FolderContents] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)

    def entry(self, path: RemotePath) -> ObjectStat | None:
        """Return the entry of an object in the cached listing of its folder."""
        return self.folders.get(path.folder.url, {}).get(path.name)


_known: ContextVar[_Known | None] = ContextVar("known", default=None)


@contextmanager
def request_cache() -> Iterator[None]:
    """List a folder of a store once, and read a short text once, within this context."""
    if _known.get() is not None:
        yield
        return
    outside = _known.set(_Known())
    try:
        yield
    finally:
        _known.reset(outside)


def list_folder(folder: RemotePath) -> FolderContents:
    """Return the entries of a folder, hidden ones too.

    Raises OSError, UnreadableSourceError.
    """
    known = _known.get()
    if known is not None and folder.url in known.folders:
        return known.folders[folder.url]
    with translated_store_errors(folder.url):
        contents = _contents(*open_filesystem(folder.url))
    if known is not None:
        known.folders[folder.url] = contents
    return contents


def _contents(store: Any, name: str) -> FolderContents:  # noqa: ANN401 - of a library without types
    return {
        info["name"].rstrip("/").rpartition("/")[2]: _entry(info)
        for info in sorted(store.ls(name, detail=True), key=_folders_first)
        if info["name"].strip("/") != name.strip("/")
    }


def _folders_first(info: Mapping[str, Any]) -> bool:
    """Sort key: folders first, so an object of the same name replaces its folder."""
    return bool(info["type"] != "directory")


def cache_listing(folder: RemotePath) -> None:
    """List a whole tree in one request, for `list_folder` within `request_cache`.

    Raises OSError, UnreadableSourceError.
    """
    known = _known.get()
    if known is None or folder.url in known.folders:
        return
    with translated_store_errors(folder.url):
        store, name = open_filesystem(folder.url)
        every = store.find(name, detail=True)
    listings: dict[str, dict[str, ObjectStat]] = {folder.url: {}}
    for path, info in every.items():
        inside = path.removeprefix(name).removeprefix("/")
        *subfolders, last = inside.split("/")
        within = folder.url
        for subfolder in subfolders:
            listings[within].setdefault(subfolder, ObjectStat(is_folder=True))
            within = f"{within}/{subfolder}"
            listings.setdefault(within, {})
        if last:  # empty for the marker object of a folder
            listings[within][last] = _entry(info)
    known.folders.update(listings)


def walk_objects(folder: RemotePath) -> Iterator[tuple[RemotePath, ObjectStat]]:
    """Yield all objects beneath a folder, ordered by path, except hidden ones.

    Raises OSError, UnreadableSourceError.
    """
    for name, entry in sorted(list_folder(folder).items()):
        if name.startswith("."):
            continue
        if entry.is_folder:
            yield from walk_objects(folder.child(name))
        else:
            yield folder.child(name), entry


def match_objects(
    folder: RemotePath, pattern: Sequence[str]
) -> Iterator[tuple[RemotePath, ObjectStat]]:
    """Yield objects and folders beneath a folder that match a pattern.

    pattern: names or globs, for one level of folders after another; `**` matches any number of
    folders. Raises UnreadableSourceError.
    """
    name, *further = pattern
    try:
        if name == "**":
            cache_listing(folder)
        elif further and not has_magic(name):
            yield from match_objects(folder.child(name), further)
            return
        here = sorted(list_folder(folder).items())
    except FileNotFoundError:
        return
    if name == "**":
        yield from match_objects(folder, further)
        further = list(pattern)
    for child, entry in here:
        fits = name == "**" or fnmatchcase(child, name)
        if not fits or (child.startswith(".") and not name.startswith(".")):
            continue
        if further and entry.is_folder:
            yield from match_objects(folder.child(child), further)
        elif not further:
            yield folder.child(child), entry


def prefetch(paths: Iterable[Path]) -> None:
    """Request small objects and the listings of their folders, many at once.

    The next call drops these objects. A failed request is repeated when the object is opened.
    Outside `request_cache` this does nothing.
    """
    known = _known.get()
    objects = [one for path in paths if (one := as_remote(path)) is not None]
    if known is None or len(objects) <= 1:
        return
    known.objects.clear()
    _tried(list_folder, objects[0].folder)  # alone: sets up the connection for the others
    folders = {one.folder for one in objects if one.folder.url not in known.folders}
    known.folders.update(_at_once(_contents, folders))
    sizes = {one: known.entry(one) for one in objects}
    small = [one for one, entry in sizes.items() if entry and entry.st_size <= OBJECT_BLOCK_BYTES]
    known.objects.update(_at_once(_data, small))


def _data(store: Any, name: str) -> bytes:  # noqa: ANN401 - of a library without types
    return bytes(store.cat_file(name))


def _at_once(
    ask: Callable[[Any, str], StoreAnswer], paths: Iterable[RemotePath]
) -> dict[str, StoreAnswer]:
    """Return the answers of a request for many paths, by address.

    Failed ones are left out. fsspec opens a connection per thread that opens a store, so a single
    thread opens all stores.
    """
    where = {path.url: store for path in paths if (store := _tried(open_filesystem, path.url))}
    with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS) as pool:
        answers = pool.map(lambda at: _tried(ask, *at), where.values())
        each = zip(where, answers, strict=True)
        return {url: answer for url, answer in each if answer is not None}


def _tried(ask: Callable[..., StoreAnswer], *about: object) -> StoreAnswer | None:
    with suppress(Exception):
        return ask(*about)
    return None


def _entry(info: Mapping[str, Any]) -> ObjectStat:
    if info["type"] == "directory":
        return ObjectStat(is_folder=True)
    version = next((str(info[name]) for name in VERSION_KEYS if info.get(name)), "")
    written = next((info[name] for name in MTIME_KEYS if info.get(name)), None)
    number = _number(version.strip('"')) if version else 0
    return ObjectStat(
        int(info.get("size") or 0), _seconds(written, version) * 1_000_000_000, number
    )


def _seconds(written: object, version: str) -> int:
    """Return a write time as Unix seconds.

    Without a time: 0 for an object with a version, else the current time, so nobody relies on it.
    """
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if isinstance(written, datetime):
        return int(written.timestamp())
    if isinstance(written, int | float):
        return int(written)
    return 0 if version else int(time.time())


def _number(version: str) -> int:
    """Return a number of 63 bits made from a version."""
    return int.from_bytes(blake2b(version.encode(), digest_size=8).digest()) >> 1


# -- a path --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class RemotePath:
    """A path of an object store, with the methods of pathlib.Path used for logs.

    They raise OSError as pathlib's do, and UnreadableSourceError if the store cannot be asked.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, path: str) -> Path:
        """Return a path relative to this one; an absolute path is one of this machine."""
        if path.startswith("/"):
            return Path(path)
        protocol, mark, here = self.url.partition(URL_SEPARATOR)
        root = "/" if here.startswith("/") else ""
        parts = posixpath.normpath(f"/{here}/{path}").strip("/")
        return _as_path(RemotePath(f"{protocol}{mark}{root}{parts}"))

    def require_bucket(self) -> None:
        """Raise UnreadableSourceError if a pattern takes the place of the bucket's name."""
        if has_magic("/".join(self.url.split("/")[: len(BUCKET_PLACEHOLDER_PARTS)])):
            raise BUCKET_PATTERN(path=self)

    def split_at_pattern(self) -> tuple[RemotePath, list[str]]:
        """Split into the folder above the first pattern, and the names after.

        A final `**` is dropped.
        """
        names = self.url.split("/")
        while names[-1] == "**":  # the contents of a matching folder are walked anyway
            names.pop()
        first = next((at for at, name in enumerate(names) if has_magic(name)), len(names))
        return RemotePath("/".join(names[:first])), names[first:]

    def child(self, name: str) -> RemotePath:
        """Return the path of an entry of this folder."""
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """File extension of the name, as pathlib's."""
        return PurePosixPath(self.name).suffix

    @property
    def folder(self) -> RemotePath:
        """Folder of this path; a bucket is its own folder."""
        protocol, mark, here = self.url.partition(URL_SEPARATOR)
        above = here.rpartition("/")[0]
        return RemotePath(f"{protocol}{mark}{above}") if above else self

    @property
    def parent(self) -> Path:
        """`folder`, typed as Path."""
        return _as_path(self.folder)

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket, the folders and the name."""
        return PurePosixPath(self.url.partition(URL_SEPARATOR)[2]).parts

    def with_name(self, name: str) -> Path:
        """Return a path in the same folder."""
        return _as_path(self.folder.child(name))

    def absolute(self) -> Path:
        """Return this path: every address is absolute."""
        return _as_path(self)

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Return the path relative to a folder above."""
        return PurePosixPath(self.url.removeprefix(f"{folder.url}/"))

    def exists(self) -> bool:
        """True if the object is in its folder's listing, or if the store cannot be asked."""
        try:
            return self._by_folder() is not None
        except FairmfuError:
            return True

    def is_file(self) -> bool:
        """True if the listing of the folder is readable and has such an object."""
        entry = self._by_folder()
        return entry is not None and not entry.is_folder

    def stat(self) -> ObjectStat:
        """Return size and version, from the folder's cached listing or the store.

        Raises OSError, UnreadableSourceError.
        """
        entry = self._by_folder() if _known.get() is not None else None
        return entry or self.look()

    def look(self) -> ObjectStat:
        """Return the size and version without listing the folder. Raises as `stat` does."""
        known = _known.get()
        if known is not None and (entry := known.entry(self)) is not None:
            return entry
        with translated_store_errors(self.url):
            store, name = open_filesystem(self.url)
            return _entry(store.info(name))

    def _by_folder(self) -> ObjectStat | None:
        try:
            return list_folder(self.folder).get(self.name)
        except (FileNotFoundError, PermissionError):  # a right to read may not include listing
            return None

    def glob(self, pattern: str) -> Iterator[Path]:
        """Yield objects beneath this folder that match the pattern.

        As Path.glob, yields none of a folder that may not be listed.
        """
        first, *_ = parts = pattern.split("/")
        if has_magic(first) or first in self._held():
            with suppress(PermissionError):
                yield from (_as_path(path) for path, _ in match_objects(self, parts))

    def _held(self) -> FolderContents:
        try:
            return list_folder(self)
        except (FileNotFoundError, PermissionError):
            return {}

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the whole text.

        Raises OSError, UnicodeDecodeError, UnreadableSourceError.
        """
        known = _known.get()
        data = known.texts.get(self.url) if known else None
        if data is None:
            data = self._bytes()
            if known is not None and len(data) <= MAX_CACHED_TEXT_BYTES:
                if len(known.texts) >= MAX_CACHED_TEXTS:
                    known.texts.clear()
                known.texts[self.url] = data
        return data.decode(encoding)

    def _bytes(self) -> bytes:
        with translated_store_errors(self.url):
            return _data(*open_filesystem(self.url))

    def open(self, _mode: str = "rb") -> IO[bytes]:
        """Open for reading from the beginning. Raises OSError, UnreadableSourceError."""
        known = _known.get()
        if known is not None and self.url in known.objects:
            return io.BytesIO(known.objects[self.url])
        if self.stat().st_size <= OBJECT_BLOCK_BYTES:
            data = self._bytes()
            if known is not None:
                known.objects = {self.url: data}  # format and hash are read one after the other
            return io.BytesIO(data)
        with translated_store_errors(self.url):
            store, name = open_filesystem(self.url)
            raw = store.open(name, "rb", block_size=OBJECT_BLOCK_BYTES, cache_type="readahead")
        return cast("IO[bytes]", _Object(self.url, raw))


class _Object(io.RawIOBase):
    """A large object, read in blocks, all of one version if the store can.

    A read raises UnreadableSourceError if the object goes or changes meanwhile, or is cut off.
    """

    def __init__(self, url: str, raw: Any) -> None:  # noqa: ANN401 - of a library without types
        self._url, self._raw = url, raw

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - what supports the buffer protocol
        at = self.tell()
        try:
            with translated_store_errors(self._url, f" after {at:,} bytes"):
                count = int(self._raw.readinto(buffer))
        except OSError as error:
            raise OBJECT_CUT_OFF(url=self._url, why=error.strerror, bytes=at) from error
        if not count and len(buffer) and at < self._raw.size:
            raise OBJECT_CUT_OFF(url=self._url, why="it ended early", bytes=at)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


# -- errors --------------------------------------------------------------------------------------

NOT_FOUND_MESSAGE: Final = "no such file or folder"
MAX_ERROR_CHARS: Final = 300
UNINFORMATIVE_ERRORS: Final = ("Not Found", "Forbidden")
"""Words of a store that give no reason."""

_WRITTEN_ANEW: Final = frozenset({"FileExpired"})
_NONE_GIVEN: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}
    | {"ProfileNotFound", "TokenRetrievalError", "SSOError", "DefaultCredentialsError"}
)
_NOT_REACHED: Final = frozenset(
    {"EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError", "SSLError"}
    | {"ProxyConnectionError", "ConnectionRefusedError", "gaierror"}
)
_BROKE_OFF: Final = frozenset(
    {"IncompleteReadError", "IncompleteRead", "ResponseStreamingError", "ClientPayloadError"}
    | {"HTTPClientError", "ConnectionError", "FSTimeoutError", "TimeoutError"}
)
"""Classes of botocore, aiohttp, fsspec, Python and Google, by name: they need not be installed."""


@contextmanager
def translated_store_errors(url: str, progress: str = "") -> Iterator[None]:
    """Translate errors of a store's library: where, why and what to do.

    FileNotFoundError and PermissionError keep their type; all others become UnreadableSourceError.
    progress: the part that was read, as words for the message.
    """
    try:
        yield
    except FairmfuError:
        raise
    except ImportError as error:
        raise _missing(url, error) from error
    except FileNotFoundError as error:
        why = f"{NOT_FOUND_MESSAGE}{_said(error, url)}"
        raise FileNotFoundError(errno.ENOENT, why, url) from error
    except PermissionError as error:
        why = f"access denied{_said(error, url)}; check that the credentials may read it"
        raise PermissionError(errno.EACCES, why, url) from error
    except Exception as error:
        raise _cause(error)(url=url, detail=_said(error, url), progress=progress) from error


def _missing(url: str, error: ImportError) -> UnreadableSourceError:
    if url.startswith(S3_PREFIXES) or (error.name or "").startswith("fsspec"):
        return S3_EXTRA_MISSING(url=url)
    protocol = url.partition(URL_SEPARATOR)[0] + URL_SEPARATOR
    return PROTOCOL_PACKAGE_MISSING(url=url, protocol=protocol, error=error)


def _cause(error: Exception) -> ErrorKind[UnreadableSourceError]:
    """Return the kind of error of a failed request."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _WRITTEN_ANEW:
        return OBJECT_OVERWRITTEN
    if isinstance(error, OSError) and error.errno == errno.EBUSY:
        return OBJECT_STORE_BUSY
    causes = {
        NO_CREDENTIALS: _NONE_GIVEN,
        OBJECT_STORE_UNREACHABLE: _NOT_REACHED,
        CONNECTION_LOST: _BROKE_OFF,
    }
    return next((kind for kind, names in causes.items() if kinds & names), OBJECT_STORE_FAILED)


def _said(error: Exception, url: str) -> str:
    """Return the words of a library, without request IDs and HTTP codes."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    words = re.split(r",? Request ID: |, HTTP Status code: ", " ".join(words.split()))[0]
    words = words[:MAX_ERROR_CHARS].strip(" .")
    known = words in url or words in UNINFORMATIVE_ERRORS or type(error).__name__ in _WRITTEN_ANEW
    return "" if known else f" ({words})"
