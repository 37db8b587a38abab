"""Errors of the store: missing, locked, damaged, or not writable."""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, StoreError

NO_STORE: Final = ErrorKind(
    "no-store",
    "{store}: no store here.",
    "A command needs a store, and the folder has none.",
    StoreError,
    fix="name yours with --store or FAIRMFU_STORE, or make one with: fairmfu ingest LOG… --store "
    "DIR",
)
STORE_PATH_PATTERN: Final = ErrorKind(
    "store-path-pattern",
    "{store}: a store's path cannot contain * ? [ or ], because its parts are read by pattern.",
    "A store's path has characters of patterns.",
    StoreError,
    fix="give another --store",
)
UNSAFE_PROTOCOL: Final = ErrorKind(
    "unsafe-protocol",
    "{address}: a store cannot be at {protocol}, because two machines that write at once may "
    "overwrite each other.",
    "A store's address is of a protocol without conditional writes.",
    StoreError,
    fix="give a folder, or an address of: {protocols}",
)
OTHER_SCHEMA: Final = ErrorKind(
    "other-schema",
    "{store}: this store has {schema}, and this fairmfu reads schema {readable}.",
    "Another version of fairmfu wrote the store.",
    StoreError,
    fix="use the version of fairmfu that wrote it",
)
PART_OF_OTHER_SCHEMA: Final = ErrorKind(
    "part-of-other-schema",
    "{path}: written with schema {schema}, and this fairmfu reads schema {readable}.",
    "Another version of fairmfu wrote a part of the store.",
    StoreError,
    fix="use the version of fairmfu that wrote it",
)

UNTRUSTED_CATALOGUE: Final = ErrorKind(
    "untrusted-catalogue",
    "{path}: fairmfu did not write this catalogue: {why}. It is not used.",
    "A catalogue has a view, a macro or a path that fairmfu never writes.",
    StoreError,
    fix="rebuild it from the parts with: fairmfu rebuild",
)
UNTRUSTED_RECORD: Final = ErrorKind(
    "untrusted-record",
    "{path}: fairmfu did not write this record: {why}. It is not used.",
    "The record of a batch lists a path that fairmfu never writes.",
    StoreError,
    fix="restore the record from a backup, or ingest the logs again into a new --store",
)
FOREIGN_PATH: Final = ErrorKind(
    "foreign-path",
    "{path}: fairmfu gives this name to no file of a store. The file is left alone.",
    "A path that fairmfu never writes is about to be read, written or deleted.",
    StoreError,
    fix="rebuild the catalogue with: fairmfu rebuild",
)
LINKED_PART: Final = ErrorKind(
    "linked-part",
    "{path}: {what} has no place in a store. It is left alone.",
    "A file or folder of a store is a link, or no regular file.",
    StoreError,
    fix="delete it or put the file itself there, then see: fairmfu doctor",
)

# -- reading -------------------------------------------------------------------------------------

PART_DENIED: Final = ErrorKind(
    "part-denied",
    "{path}: permission denied.",
    "The system refuses to open a part of the store.",
    StoreError,
    fix="ask its owner for the right to read the store",
)
DAMAGED_PART: Final = ErrorKind(
    "damaged-part",
    "{path}: this part is gone or damaged.",
    "A part of the store is missing, or not as it was written.",
    StoreError,
    fix="see what is left with: fairmfu doctor; or ingest the logs again into a new --store",
)
UNREADABLE_PARTS: Final = ErrorKind(
    "unreadable-parts",
    "{store}: a part is gone or damaged ({error}).",
    "The database cannot read the parts of a store.",
    StoreError,
    fix="see fairmfu doctor",
)
UNREADABLE_STORE: Final = ErrorKind(
    "unreadable-store",
    "{store}: cannot be read ({error}).",
    "The database fails while it reads a store.",
    StoreError,
    fix="see fairmfu doctor",
)
RECORDS_LOST: Final = ErrorKind(
    "records-lost",
    "{path}: the records of the batches are gone, so it is unknown which parts count.",
    "A catalogue is rebuilt, and the records of the batches are missing.",
    StoreError,
    fix="restore them, or ingest the logs again into a new --store",
)
RECORD_LOST: Final = ErrorKind(
    "record-lost",
    "{path}: the record of this batch is gone, and with it the list of its parts.",
    "A record between others is missing, or that of the newest batch in the catalogue.",
    StoreError,
    fix="restore it{otherwise}, or ingest the logs again into a new --store",
)
RECORD_ANEW: Final = ", or record all parts of the catalogue anew with: fairmfu compact"
"""Way out where a later record is there."""
UNREADABLE_CATALOGUE: Final = ErrorKind(
    "unreadable-catalogue",
    "{path}: cannot be read ({error}).",
    "The catalogue of a store is damaged.",
    StoreError,
    fix="rebuild it with: fairmfu rebuild",
)
CATALOGUE_LOST: Final = ErrorKind(
    "catalogue-lost",
    "{store}: the catalogue is gone.",
    "A store has parts, and no catalogue.",
    StoreError,
    fix="rebuild it with: fairmfu rebuild",
)
OUTDATED_CATALOGUE: Final = ErrorKind(
    "outdated-catalogue",
    "{store}: the catalogue is older than the parts (copied, or from a backup).",
    "The catalogue of a store lacks batches whose records are gone.",
    StoreError,
    fix="rebuild it with: fairmfu rebuild",
)

# -- writing -------------------------------------------------------------------------------------

NOT_WRITABLE: Final = ErrorKind(
    "not-writable",
    "{folder}: {why}.",
    "The system refuses to open the lock of a folder.",
    StoreError,
    fix="{remedy}",
)
STORE_LOCKED: Final = ErrorKind(
    "store-locked",
    "{folder}: {holder} is writing there and did not end within {patience_s:g} s.",
    "Another process writes to the folder for longer than a command waits.",
    StoreError,
    fix="wait for it to end, or give another {option}",
)
WRITE_FAILED: Final = ErrorKind(
    "write-failed",
    "{store}: {why}. What was stored before is intact.",
    "A write to the store fails: a full disk, or no permission.",
    StoreError,
    fix="{remedy}",
)
WRITE_CONFLICTS: Final = ErrorKind(
    "write-conflicts",
    "{store}: other machines wrote to it during each of {attempts} attempts, so nothing was "
    "stored.",
    "Other machines keep writing to the same store at an address.",
    StoreError,
    fix="run it again",
)
STAGED_PART_LOST: Final = ErrorKind(
    "staged-part-lost",
    "{path}: this part, written by a worker, is gone before it was stored. Nothing was stored "
    "from its logs.",
    "A part that a worker of a cluster wrote disappears.",
    StoreError,
    fix="run it again",
)
RUN_ID_TAKEN: Final = ErrorKind(
    "run-id-taken",
    "{path} and {other}: both have a run with the id {run}.",
    "Runs of two logs have the same id.",
    StoreError,
    fix="ingest one into another --store",
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
QUERY_TOO_LONG: Final = ErrorKind(
    "query-too-long",
    "query: it did not end within {timeout_s:g} s.",
    "A query takes longer than its limit.",
    StoreError,
    fix="select fewer rows, or allow more seconds with --timeout",
)
QUERY_TOO_LARGE: Final = ErrorKind(
    "query-too-large",
    "query: it needs more memory than {limit}.",
    "A query, or its result, needs more memory than its limit.",
    StoreError,
    fix="select fewer rows, or allow more with --memory-limit",
)
QUERY_FAILED: Final = ErrorKind(
    "query-failed",
    "query: {error}",
    "The database refuses a query.",
    StoreError,
)
UNSUPPORTED_TYPE: Final = ErrorKind(
    "unsupported-type",
    "query: a column of the result has an unsupported type, such as the difference of two times.",
    "A result has a column of a type that cannot be read.",
    StoreError,
    fix="cast it to seconds with epoch(…), or to text with ::text",
)
