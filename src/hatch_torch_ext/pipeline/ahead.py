"""Work for later items while earlier ones are used: downloads wait for the network, compilers for the processor."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from hatch_torch_ext.base.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Item = TypeVar("Item")
    Value = TypeVar("Value")


@contextlib.contextmanager
def of(items: Sequence[Item], make: Callable[[Item], Value]) -> Iterator[list[Future[Value]]]:
    """Provide the future of ``make(item)`` for each item; one thread makes them in order, as fast as it can.

    When the context ends, futures that have not begun raise ``Stopped``. The thread is a daemon, so that a build
    which stops early, for example by Ctrl-C, does not wait for an unneeded download.
    """
    futures: list[Future[Value]] = [Future() for _ in items]
    stopped = threading.Event()

    def work() -> None:
        for item, future in zip(items, futures, strict=True):
            if stopped.is_set():
                future.set_exception(Stopped())
                continue
            try:
                future.set_result(make(item))
            except BaseException as error:  # noqa: BLE001 -- raised again where the future is read
                future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="ahead", daemon=True).start()
    try:
        yield futures
    finally:
        stopped.set()
