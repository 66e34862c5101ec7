"""Tools that are safe to repeat, whichever framework calls them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ._async.client import AsyncMailonce
from ._error import MailonceError
from ._once import ClaimKey, OnceOptions
from ._sync.client import Mailonce
from ._tools import refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tool = TypeVar("Tool")


def once_tool(
    mo: Mailonce | AsyncMailonce,
    *,
    key: Callable[..., ClaimKey],
    verify: Any = None,
    **options: Unpack[OnceOptions],
) -> Callable[[Tool], Tool]:
    """Makes a tool safe to repeat: a function below the decorator of its framework, or a tool of LangChain.

    `key` gets the arguments of the tool and returns a key or an intent; never derive it from the id of a call. The
    function finds its run with `OnceRun.current()`. A refusal is a value, because many frameworks repeat a call that
    raises. `Mailonce` is for functions, `AsyncMailonce` for async functions.
    """

    def safe(function: Any) -> Any:
        if inspect.iscoroutinefunction(function) != isinstance(mo, AsyncMailonce):
            raise TypeError("Mailonce is for functions, AsyncMailonce for async functions")
        decorated: Any = mo.runs_once(key, verify=verify, **options)(function)
        if isinstance(mo, AsyncMailonce):

            @functools.wraps(function)
            async def answered_async(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await decorated(*args, **kwargs)
                except MailonceError as error:
                    return refused(error)

            return answered_async

        @functools.wraps(function)
        def answered(*args: Any, **kwargs: Any) -> Any:
            try:
                return decorated(*args, **kwargs)
            except MailonceError as error:
                return refused(error)

        return answered

    def decorate(tool: Any) -> Any:
        if inspect.isroutine(tool):
            return safe(tool)
        name = "coroutine" if isinstance(mo, AsyncMailonce) else "func"
        if getattr(tool, name, None) is None or not hasattr(tool, "model_copy"):
            raise TypeError("decorate the function, below the decorator of its framework")
        # The other half would run without a claim.
        other = "func" if name == "coroutine" else "coroutine"
        return tool.model_copy(update={name: safe(getattr(tool, name)), other: None})

    return decorate
