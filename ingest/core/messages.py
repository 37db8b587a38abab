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
    "{path}: fairmfu failed on this file: {fault}. Nothing was stored from it; other files are not "
    "affected. Please report the error, with the identifier in brackets.",
    "Reading a file failed: a fault of fairmfu.",
    ReadingFaultError,
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
    "{folder}: no space for rows that wait to be stored ({why}). Free some space and run it again.",
    "Rows wait on the disk to be stored, and the disk is full.",
    StoreError,
)

# -- object stores -------------------------------------------------------------------------------

BUCKET_PATTERN: Final = ErrorKind(
    "bucket-pattern",
    "{path}: a bucket's name cannot be a pattern. Write the name.",
    "An address has a wildcard in the bucket's name.",
    UnreadableSourceError,
)
OBJECT_CUT_OFF: Final = ErrorKind(
    "object-cut-off",
    "{url}: {why} after {bytes:,} bytes. Nothing was stored from it; run it again.",
    "An object of an object store disappears or ends early while it is read.",
    UnreadableSourceError,
)
OBJECT_OVERWRITTEN: Final = ErrorKind(
    "object-overwritten",
    "{url}: it was overwritten while it was read{progress}. Nothing was stored from it; run it "
    "again.",
    "An object of an object store changes while it is read.",
    UnreadableSourceError,
)
OBJECT_STORE_BUSY: Final = ErrorKind(
    "object-store-busy",
    "{url}: the object store limits requests, and retries failed too{detail}{progress}. Nothing "
    "was stored from it; run it again later, or with fewer --processes.",
    "An object store asks for fewer requests, also after retries.",
    UnreadableSourceError,
)
NO_CREDENTIALS: Final = ErrorKind(
    "no-credentials",
    "{url}: no credentials found{detail}{progress}. Set them as for the object store's own tools. "
    "For S3: ~/.aws with AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "No credentials for an object store are set.",
    UnreadableSourceError,
)
OBJECT_STORE_UNREACHABLE: Final = ErrorKind(
    "object-store-unreachable",
    "{url}: the object store cannot be reached{detail}{progress}. Check the address, the network "
    "and, for S3, AWS_ENDPOINT_URL.",
    "No connection to an object store.",
    UnreadableSourceError,
)
CONNECTION_LOST: Final = ErrorKind(
    "connection-lost",
    "{url}: the connection was lost{detail}{progress}. Nothing was stored from it; run it again.",
    "The connection to an object store ends while an object is read.",
    UnreadableSourceError,
)
OBJECT_STORE_FAILED: Final = ErrorKind(
    "object-store-failed",
    "{url}: the object store refused the request{detail}{progress}. Check the address, the "
    "network and, for S3, AWS_ENDPOINT_URL.",
    "An object store answers with another error.",
    UnreadableSourceError,
)
S3_EXTRA_MISSING: Final = ErrorKind(
    "s3-extra-missing",
    f"{{url}}: reading from an object store needs an extra. {install_hint('s3')}",
    "The packages for object stores are not installed.",
    UnreadableSourceError,
)
PROTOCOL_PACKAGE_MISSING: Final = ErrorKind(
    "protocol-package-missing",
    "{url}: reading from {protocol} needs a package that is not installed ({error}).",
    "The package for the protocol of an address is not installed.",
    UnreadableSourceError,
)
