"""`bounded.py SECONDS COMMAND...`: runs a command. If it takes longer, writes the stacks of its
processes to stdout, kills them, and ends with 124."""

import os
import subprocess
import sys

from tests.gpu import stacks


def main(seconds, *command):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(float(seconds))
    except subprocess.TimeoutExpired:
        pids = [process.pid, *stacks.below(process.pid)]
        print(f"\nbounded.py: not over after {seconds} s: {' '.join(command)}", flush=True)
        for pid in stacks.computing(os.getpid()):
            print(stacks.of(pid), flush=True)
        stacks.kill(pids)
        process.wait()
        code = 124
    if code < 0:
        print(f"bounded.py: ended by signal {-code}: {' '.join(command)}", flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
