"""Converts responses to dataclasses, and arguments to JSON."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_RESERVED = {"from_": "from", "for_": "for", "as_": "as"}
_WIRE = {name: safe for safe, name in _RESERVED.items()}


def read(kind: type[T], value: Any) -> T:
    """A response as `kind`. Unknown fields are dropped, and missing fields are None."""
    return typing.cast(T, _read(kind, value))


def _read(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        given = {_WIRE.get(name, name): inner for name, inner in value.items()}
        made: Any = kind
        return made(**{name: _read(hint, given.get(name)) for name, hint in _hints(made)})
    origin = typing.get_origin(kind)
    if origin is types.UnionType or origin is typing.Union:
        return _read(next(one for one in typing.get_args(kind) if one is not types.NoneType), value)
    if origin is list:
        return [_read(typing.get_args(kind)[0], inner) for inner in value]
    return value


@functools.cache
def _hints(kind: Any) -> list[tuple[str, Any]]:
    return list(typing.get_type_hints(kind).items())


def wire(body: Any) -> Any:
    """Arguments as JSON: `from_` is `from`, and dataclasses leave out what is None."""
    if dataclasses.is_dataclass(body) and not isinstance(body, type):
        return {_RESERVED.get(name, name): inner for name, inner in vars(body).items() if inner is not None}
    if isinstance(body, Mapping):
        # Rename only fields of the API, not the caller's own headers and metadata.
        out = {_RESERVED.get(name, name): inner for name, inner in body.items()}
        for name in ("intent", "match", "caps"):
            if name in out:
                out[name] = wire(out[name])
        return out
    if isinstance(body, Sequence) and not isinstance(body, str):
        return [wire(item) for item in body]
    return body
