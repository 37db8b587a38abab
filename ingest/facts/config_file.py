"""fairmfu.toml as a file, and the paths in it that all commands read.

Without the rest of the configuration, whose checks need more libraries than a completion has time
for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..core.errors import ConfigError, UnreadableSourceError
from ..core.paths import URL_SEPARATOR, parse_path
from ..core.toml_reader import TomlTable, raise_problems, read_toml
from .messages import CONFIG_MISSING, CONFIG_OUTSIDE

CONFIG_NAME: Final = "fairmfu.toml"
DEFAULT_STORE: Final = Path("fairmfu-store")
CONFIG_VARIABLE: Final = "FAIRMFU_CONFIG"
"""Environment variable: a configuration in place of ./fairmfu.toml; empty for none."""
PLACE_OPTIONS: Final = {
    "store": "--store or FAIRMFU_STORE",
    "out": "--out",
    "issue_dir": "--issue",
}
"""Keys of the places that commands write to, with their options."""


def find_config() -> Path | None:
    """Return $FAIRMFU_CONFIG, or ./fairmfu.toml if there is one. Raises ConfigError."""
    setting = os.environ.get(CONFIG_VARIABLE)
    if setting:
        if not Path(setting).is_file():
            raise CONFIG_MISSING(variable=CONFIG_VARIABLE, path=setting)
        return Path(setting)
    return Path(CONFIG_NAME) if setting is None and Path(CONFIG_NAME).is_file() else None


def configured_store() -> Path:
    """Return the store of the configuration (find_config), else DEFAULT_STORE.

    Other keys of the file may be wrong. Raises ConfigError.
    """
    store = _configured(lambda top, folder: store_path(top, folder, DEFAULT_STORE))
    config = find_config()
    if store is None or config is None:
        return DEFAULT_STORE
    if not os.environ.get(CONFIG_VARIABLE):
        require_inside(config, "store", store)
    return store


def require_inside(config: Path, key: str, path: Path) -> None:
    """Raise ConfigError if a path is outside of the configuration's folder.

    For a configuration that the user did not name: it may have come with the files of others.
    """
    folder = config.absolute().parent.resolve()
    if URL_SEPARATOR in str(path) or not path.resolve().is_relative_to(folder):
        raise CONFIG_OUTSIDE(config=config, key=key, path=path, option=PLACE_OPTIONS[key])


def configured_accelerators() -> Path | None:
    """Return the file of devices of the configuration. Raises ConfigError."""
    return _configured(devices_path)


def _configured(take: Callable[[TomlTable, Path], Path | None]) -> Path | None:
    """Return a path of the configuration; None without a configuration."""
    found = find_config()
    if found is None:
        return None
    problems: list[str] = []
    path = take(TomlTable(read_toml(found, ConfigError), "", problems), found.absolute().parent)
    raise_problems(found, problems, ConfigError)
    return path


def folder_path(table: TomlTable, key: str, folder: Path, default: Path) -> Path:
    """Return a path in the configuration's folder; add a problem if it is empty."""
    text = table.take(key, str, str(default))
    if not text:
        table.add_problem(key, "is empty. Write a folder, or leave it out.")
    return folder / path_of_home(table, key, text)


def store_path(table: TomlTable, folder: Path, default: Path) -> Path:
    """Return a folder, or an address of an object store."""
    value = table.values.get("store")
    if isinstance(value, str) and URL_SEPARATOR in value:
        return address_path(table, "store", value)
    return folder_path(table, "store", folder, default)


def path_of_home(table: TomlTable, key: str, text: str) -> Path:
    """Return a path with `~` expanded; add a problem for an invalid path."""
    wrong = "a path cannot contain a NUL character." if "\0" in text else ""
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        path, wrong = Path(text), str(error)
    if wrong:
        table.add_problem(key, f"is {text!r}: {wrong}")
    return path


def address_path(table: TomlTable, key: str, text: str) -> Path:
    """Return an address in an object store; add a problem if it is none."""
    try:
        return parse_path(text)
    except UnreadableSourceError as error:
        table.add_problem(key, f"has an invalid address: {error}")
    return Path(text)


def devices_path(table: TomlTable, folder: Path) -> Path | None:
    """Return the file of devices, if any; add a problem if it does not exist."""
    if "accelerators" not in table.values:
        return None
    path = folder_path(table, "accelerators", folder, Path())
    try:
        exists = path.is_file()
    except OSError as error:  # a name that is too long
        table.add_problem("accelerators", f"{path}: {error.strerror}.")
    else:
        if not exists:
            table.add_problem("accelerators", f"{path}: no such file.")
    return path
