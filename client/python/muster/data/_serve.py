"""The program of a worker process (_workers.py):

    python -m muster.data._serve

reads pickled Settings and then pickled Chunks from its standard input, and answers each Chunk with
a pickled Encoded. The end of the input ends it."""

from __future__ import annotations

import os
import sys

from muster.data._encode import Encoder
from muster.data._pipe import receive, send


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are several such processes
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be written among the answers
    try:
        encoder = Encoder(receive(source))
        while True:
            send(answers, encoder.encode(receive(source)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
