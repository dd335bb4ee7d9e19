"""Work for later items while earlier ones are used: fetching waits for the network, compiling for the processor."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Item = TypeVar("Item")
    Value = TypeVar("Value")


def of(items: Sequence[Item], make: Callable[[Item], Value]) -> Iterator[tuple[Item, Future[Value]]]:
    """Yield each item with the future of ``make(item)``; one thread makes them, in order, as fast as it can.

    The thread is a daemon: whoever stops early, by Ctrl-C above all, does not wait for a download that nobody wants.
    """
    futures: list[Future[Value]] = [Future() for _ in items]
    stopped = threading.Event()

    def work() -> None:
        for item, future in zip(items, futures, strict=True):
            if stopped.is_set():
                return
            try:
                future.set_result(make(item))
            except BaseException as error:  # noqa: BLE001 -- raised again where the future is read
                future.set_exception(error)

    threading.Thread(target=work, name="ahead", daemon=True).start()
    try:
        yield from zip(items, futures, strict=True)
    finally:
        stopped.set()
