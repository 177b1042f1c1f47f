# Tangled from book/1-foundations/L0.1-tensor.md
"""Whether operations are recorded: the switch that `no_grad` turns off for a while."""

from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Self, TypeVar

__all__ = ["is_recording", "no_grad"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _Block(ContextDecorator):
    """A stretch of the program in which nothing is recorded, and the open one around it."""

    _open, _around = False, None

    def __enter__(self) -> None:
        if self._open:
            raise RuntimeError("this no_grad() is in use already: make one for each block")
        self._around, self._open = _innermost(), True
        _inside.set(self)

    def __exit__(self, *error: object) -> None:
        self._open = False  # whoever ends it, it has ended for the context that began it
        _inside.set(_innermost())

    def _recreate_cm(self) -> Self:
        return type(self)()  # each call of a decorated function is a block of its own

    def __call__(self, function: Function) -> Function:
        if any(runs_later(function) for runs_later in _LATER):
            raise TypeError(
                f"no_grad: the body of {function.__name__} runs after the call: say "
                "`with no_grad():` inside it, around what is between two yields or awaits"
            )
        return super().__call__(function)


_LATER = isgeneratorfunction, iscoroutinefunction, isasyncgenfunction
_inside: ContextVar[_Block | None] = ContextVar("inside", default=None)


def _innermost() -> _Block | None:
    """The block that is open here and now, if one is."""
    block = _inside.get()
    while block is not None and not block._open:
        block = block._around
    return block


def no_grad() -> _Block:
    """Inside the block, or the function it decorates, operations are not recorded.

    TypeError for a generator or coroutine function, whose body runs after the call.
    """
    return _Block()


def is_recording() -> bool:
    """Whether operations are recorded here and now: True, except inside `no_grad()`."""
    return _innermost() is None
