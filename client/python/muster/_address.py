"""The address of a coordinator, by the rules of common/rpc/address.h."""

from __future__ import annotations

import os
import pathlib

from muster import errors

_UNIX = "unix:"
# The kernel's limit for the path of a Unix socket.
_MOST_BYTES = 107


def _checked(text: str) -> str:
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        size = len(os.fsencode(path))
        if not path.startswith("/"):
            raise errors.InvalidArgument(
                f"address '{text}': the path of a Unix socket must begin with '/'"
            )
        if size > _MOST_BYTES:
            raise errors.InvalidArgument(
                f"address '{text}': the path has {size} bytes; that of a Unix socket has at most "
                f"{_MOST_BYTES}"
            )
        return text
    host, colon, port = text.rpartition(":")
    brackets = host.startswith("[") and host.endswith("]")
    digits = port.isascii() and port.isdigit()
    if not colon or not digits or int(port) > 65535 or host in ("", "[]"):
        pass
    elif brackets or ":" not in host:
        return text
    raise errors.InvalidArgument(
        f"address '{text}': expected HOST:PORT, unix:/PATH, or a coordinator's state directory"
    )


def find_coordinator(text: str) -> str:
    """Returns the address of a coordinator that is named by HOST:PORT, by unix:/PATH, or by its
    state directory (a path that begins with '/' or '.'). InvalidArgument: the name has another
    form. PermissionDenied: the directory cannot be read. Unavailable: no coordinator has run with
    this directory."""
    if not text.startswith(("/", ".")):
        return _checked(text)
    folder = os.path.abspath(text)
    try:
        return _checked((pathlib.Path(folder) / "address").read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        socket = f"{_UNIX}{folder}/socket"
    except OSError as error:
        raise errors.PermissionDenied(f"{folder} cannot be read: {error}") from error
    if len(os.fsencode(socket)) - len(_UNIX) > _MOST_BYTES:
        raise errors.Unavailable(
            f"no coordinator has run with the state directory {text} (it has no file 'address'); "
            f"`musterd --state {text}` starts one"
        )
    return socket


def default_address() -> str:
    """Returns $MUSTER_ADDRESS, or musterd's default state directory."""
    if address := os.environ.get("MUSTER_ADDRESS"):
        return address
    state = os.environ.get("XDG_STATE_HOME") or str(pathlib.Path.home() / ".local/state")
    return str(pathlib.Path(state) / "muster")
