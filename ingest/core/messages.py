"""Errors of reading any file, and of object stores."""

from __future__ import annotations

from typing import Final

from .errors import (
    ErrorKind,
    FairmfuError,
    ReadingFaultError,
    StoreError,
    UnreadableSourceError,
    install_hint,
)

READING_FAULT: Final = ErrorKind(
    "reading-fault",
    "{path}: fairmfu failed on this file: {fault}. Nothing was stored from it; other files are "
    "not affected.",
    "Reading a file failed: a fault of fairmfu.",
    ReadingFaultError,
    fix="report the error, with the identifier in brackets",
)
UNREADABLE_FILE: Final = ErrorKind(
    "unreadable-file",
    "{path}: cannot be read: {why}",
    "The system refuses to open or read a file.",
    UnreadableSourceError,
)
INVALID_TOML: Final = ErrorKind(
    "invalid-toml",
    "{path}: not a TOML file: {error}.{hint}",
    "A configuration or format file is not TOML.",
    FairmfuError,
)
INVALID_VALUES: Final = ErrorKind(
    "invalid-values",
    "{path}: {problems}",
    "A configuration or format file has keys or values that are not allowed.",
    FairmfuError,
)
SPOOL_FAILED: Final = ErrorKind(
    "spool-failed",
    "{folder}: no space for rows that wait to be stored ({why}).",
    "Rows wait on the disk to be stored, and the disk is full.",
    StoreError,
    fix="free some space and run it again",
)

# -- object stores -------------------------------------------------------------------------------

BUCKET_PATTERN: Final = ErrorKind(
    "bucket-pattern",
    "{path}: a bucket's name cannot be a pattern.",
    "An address has a wildcard in the bucket's name.",
    UnreadableSourceError,
    fix="write the name",
)
OBJECT_CUT_OFF: Final = ErrorKind(
    "object-cut-off",
    "{url}: {why} after {bytes:,} bytes. Nothing was stored from it.",
    "An object of an object store disappears or ends early while it is read.",
    UnreadableSourceError,
    fix="run it again",
)
OBJECT_OVERWRITTEN: Final = ErrorKind(
    "object-overwritten",
    "{url}: it was overwritten while it was read{progress}. Nothing was stored from it.",
    "An object of an object store changes while it is read.",
    UnreadableSourceError,
    fix="run it again",
)
OBJECT_STORE_BUSY: Final = ErrorKind(
    "object-store-busy",
    "{url}: the object store limits requests, and retries failed too{detail}{progress}. "
    "Nothing was stored from it.",
    "An object store asks for fewer requests, also after retries.",
    UnreadableSourceError,
    fix="run it again later, or with fewer --processes",
)
NO_CREDENTIALS: Final = ErrorKind(
    "no-credentials",
    "{url}: no credentials found{detail}{progress}.",
    "No credentials for an object store are set.",
    UnreadableSourceError,
    fix="set them as for the object store's own tools. For S3: ~/.aws with AWS_PROFILE, or "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
)
OBJECT_STORE_UNREACHABLE: Final = ErrorKind(
    "object-store-unreachable",
    "{url}: the object store cannot be reached{detail}{progress}.",
    "No connection to an object store.",
    UnreadableSourceError,
    fix="check the address, the network and, for S3, AWS_ENDPOINT_URL",
)
CONNECTION_LOST: Final = ErrorKind(
    "connection-lost",
    "{url}: the connection was lost{detail}{progress}. Nothing was stored from it.",
    "The connection to an object store ends while an object is read.",
    UnreadableSourceError,
    fix="run it again",
)
OBJECT_STORE_FAILED: Final = ErrorKind(
    "object-store-failed",
    "{url}: the object store refused the request{detail}{progress}.",
    "An object store answers with another error.",
    UnreadableSourceError,
    fix="check the address, the network and, for S3, AWS_ENDPOINT_URL",
)
S3_EXTRA_MISSING: Final = ErrorKind(
    "s3-extra-missing",
    "{url}: reading from an object store needs an extra.",
    "The packages for object stores are not installed.",
    UnreadableSourceError,
    fix=install_hint("s3"),
)
PROTOCOL_PACKAGE_MISSING: Final = ErrorKind(
    "protocol-package-missing",
    "{url}: reading from {protocol} needs a package that is not installed ({error}).",
    "The package for the protocol of an address is not installed.",
    UnreadableSourceError,
    fix="install it beside fairmfu",
)
