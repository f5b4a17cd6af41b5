"""Worker processes that encode chunks of records (_serve.py), in order.

They are programs of their own: neither a fork of a process with threads, nor one that imports the
caller's program again."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator

from muster.data._encode import Encoded, Settings
from muster.data._pipe import receive, send
from muster.data._records import Chunk

# The chunks that wait or are worked on, for each process: this bounds the memory.
_AHEAD = 3


class Workers:
    def __init__(self, count: int, settings: Settings):
        self._settings = settings
        self._count = count
        self._lock = threading.Lock()
        self._all: list[subprocess.Popen[bytes]] = []
        self._own = threading.local()
        self._threads = concurrent.futures.ThreadPoolExecutor(count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.kill()
            process.wait()
        self._threads.shutdown()
        for process in self._all:
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):  # what was not sent is not needed
                    if stream is not None:
                        stream.close()

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        """Yields each chunk with its documents, in the order of the chunks. RuntimeError: a process
        has ended."""
        waiting: collections.deque[tuple[Chunk, concurrent.futures.Future[Encoded]]] = (
            collections.deque()
        )
        for chunk in chunks:
            waiting.append((chunk, self._threads.submit(self._encode, chunk)))
            if len(waiting) >= _AHEAD * self._count:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()

    def _encode(self, chunk: Chunk) -> Encoded:
        """Runs on a thread that has a process of its own."""
        new = not hasattr(self._own, "process")
        if new:
            self._own.process = self._start()
        process: subprocess.Popen[bytes] = self._own.process
        assert process.stdin is not None and process.stdout is not None
        try:
            if new:
                send(process.stdin, self._settings)
            send(process.stdin, chunk)
            found = receive(process.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError(
                f"a process that makes tokens has ended (exit status {process.wait()}) at "
                f"{chunk.source}, {chunk.unit} {chunk.first} and the following {chunk.count}"
            ) from error
        assert isinstance(found, Encoded)
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        package = pathlib.Path(__file__).parents[2]
        path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))
        with self._lock:
            process = subprocess.Popen(
                [sys.executable, "-m", "muster.data._serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # an interrupt is for the program that started it
            )
            self._all.append(process)
        return process
