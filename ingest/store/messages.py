"""Errors of the store: missing, locked, damaged, or not writable."""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, StoreError

NO_STORE: Final = ErrorKind(
    "no-store",
    "{store}: no store here. Name yours with --store or FAIRMFU_STORE, or make one with: "
    "fairmfu ingest LOG… --store DIR",
    "A command needs a store, and the folder has none.",
    StoreError,
)
STORE_PATH_PATTERN: Final = ErrorKind(
    "store-path-pattern",
    "{store}: a store's path cannot contain * ? [ or ], because its parts are read by pattern. "
    "Give another --store.",
    "A store's path has characters of patterns.",
    StoreError,
)
UNSAFE_PROTOCOL: Final = ErrorKind(
    "unsafe-protocol",
    "{address}: a store cannot be at {protocol}, because two machines that write at once may "
    "overwrite each other. Give a folder, or an address of: {protocols}.",
    "A store's address is of a protocol without conditional writes.",
    StoreError,
)
OTHER_SCHEMA: Final = ErrorKind(
    "other-schema",
    "{store}: this store has {schema}, and this fairmfu reads schema {readable}. Use the version "
    "of fairmfu that wrote it.",
    "Another version of fairmfu wrote the store.",
    StoreError,
)
PART_OF_OTHER_SCHEMA: Final = ErrorKind(
    "part-of-other-schema",
    "{path}: written with schema {schema}, and this fairmfu reads schema {readable}. Use the "
    "version of fairmfu that wrote it.",
    "Another version of fairmfu wrote a part of the store.",
    StoreError,
)

# -- reading -------------------------------------------------------------------------------------

PART_DENIED: Final = ErrorKind(
    "part-denied",
    "{path}: permission denied. Ask its owner for the right to read the store.",
    "The system refuses to open a part of the store.",
    StoreError,
)
DAMAGED_PART: Final = ErrorKind(
    "damaged-part",
    "{path}: this part is gone or damaged. See what is left with: fairmfu doctor; or ingest the "
    "logs again into a new --store.",
    "A part of the store is missing, or not as it was written.",
    StoreError,
)
UNREADABLE_PARTS: Final = ErrorKind(
    "unreadable-parts",
    "{store}: a part is gone or damaged ({error}). See: fairmfu doctor",
    "The database cannot read the parts of a store.",
    StoreError,
)
UNREADABLE_STORE: Final = ErrorKind(
    "unreadable-store",
    "{store}: cannot be read ({error}). See: fairmfu doctor",
    "The database fails while it reads a store.",
    StoreError,
)
RECORDS_LOST: Final = ErrorKind(
    "records-lost",
    "{path}: the records of the batches are gone, so it is unknown which parts count. Restore "
    "them, or ingest the logs again into a new --store.",
    "A catalogue is rebuilt, and the records of the batches are missing.",
    StoreError,
)
UNREADABLE_CATALOGUE: Final = ErrorKind(
    "unreadable-catalogue",
    "{path}: cannot be read ({error}). Rebuild it with: fairmfu rebuild",
    "The catalogue of a store is damaged.",
    StoreError,
)
CATALOGUE_LOST: Final = ErrorKind(
    "catalogue-lost",
    "{store}: the catalogue is gone. Rebuild it with: fairmfu rebuild",
    "A store has parts, and no catalogue.",
    StoreError,
)
OUTDATED_CATALOGUE: Final = ErrorKind(
    "outdated-catalogue",
    "{store}: the catalogue is older than the parts (copied, or from a backup). Rebuild it with: "
    "fairmfu rebuild",
    "The catalogue of a store lacks batches whose records are gone.",
    StoreError,
)

# -- writing -------------------------------------------------------------------------------------

NOT_WRITABLE: Final = ErrorKind(
    "not-writable",
    "{folder}: {why}. {remedy}",
    "The system refuses to open the lock of a folder.",
    StoreError,
)
STORE_LOCKED: Final = ErrorKind(
    "store-locked",
    "{folder}: {holder} is writing there and did not end within {patience_s:g} s. Wait for it to "
    "end, or give another {option}.",
    "Another process writes to the folder for longer than a command waits.",
    StoreError,
)
WRITE_FAILED: Final = ErrorKind(
    "write-failed",
    "{store}: {why}. What was stored before is intact. {remedy}",
    "A write to the store fails: a full disk, or no permission.",
    StoreError,
)
WRITE_CONFLICTS: Final = ErrorKind(
    "write-conflicts",
    "{store}: other machines wrote to it during each of {attempts} attempts, so nothing was "
    "stored. Run it again.",
    "Other machines keep writing to the same store at an address.",
    StoreError,
)
STAGED_PART_LOST: Final = ErrorKind(
    "staged-part-lost",
    "{path}: this part, written by a worker, is gone before it was stored. Nothing was stored from "
    "its logs; run it again.",
    "A part that a worker of a cluster wrote disappears.",
    StoreError,
)
RUN_ID_TAKEN: Final = ErrorKind(
    "run-id-taken",
    "{path} and {other}: both have a run with the id {run}. Ingest one into another --store.",
    "Runs of two logs have the same id.",
    StoreError,
)

# -- queries -------------------------------------------------------------------------------------

NO_SELECT: Final = ErrorKind(
    "no-select",
    "query takes one SELECT statement: a store is read-only here.",
    "A query has several statements, or one that is not a SELECT.",
    StoreError,
)
QUERY_OF_FILES: Final = ErrorKind(
    "query-of-files",
    "query reads only the tables of the store, and no other file or address. {error}",
    "A query names a file or an address.",
    StoreError,
)
QUERY_FAILED: Final = ErrorKind(
    "query-failed",
    "query: {error}",
    "The database refuses a query.",
    StoreError,
)
UNSUPPORTED_TYPE: Final = ErrorKind(
    "unsupported-type",
    "query: a column of the result has an unsupported type, such as the difference of two times. "
    "Cast it to seconds with epoch(…), or to text with ::text.",
    "A result has a column of a type that cannot be read.",
    StoreError,
)
