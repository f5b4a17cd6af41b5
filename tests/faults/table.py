"""Runs a table of faults with any set of the four programs, and prints what each fault causes.

    python -m tests.faults.table --programs DIR [--plugin paced.so] [--only WORD] [--keep DIR]

Each row is one run of real programs: the fault, what happened, and whether
docs/reference/faults.md promises this."""

import argparse
import datetime
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import traceback

from tests.faults import programs as programs_by_hand

LEASES = {"validation": "1s"}


def main():
    # SIGTERM raises, so that the processes of a terminated run are ended, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", help="a folder in which what each row leaves is kept")
    arguments = parser.parse_args()
    plugin = programs_by_hand.use(arguments.plugin)
    from tests.faults import (  # noqa: F401 (they add their rows)
        table_disks,
        table_jobs,
        table_programs,
        table_row,
    )
    from tests.process import harness

    table_row.PLUGIN = plugin
    folder = programs_by_hand.check(arguments.programs)
    print(
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} "
        f"cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| what was done | what happened | as it should be |\n|---|---|---|", flush=True)
    bad = 0
    for done, play in table_row.ROWS:
        if arguments.only not in done:
            continue
        lease = next((value for word, value in LEASES.items() if done.startswith(word)), "2s")
        where = pathlib.Path(tempfile.mkdtemp(prefix="muster-table-", dir=arguments.keep))
        work = where / "work"
        work.mkdir()
        muster = harness.Muster(folder, work, lease=lease)
        try:
            text, good = play(muster)
            verdict = "yes" if good else "NO"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            text, verdict = (
                f"{type(error).__name__}: {str(error)[:300]}",
                "NO (the row did not end)",
            )
        finally:
            left = [process.command for process in muster.processes()]
            muster.close()
            if not arguments.keep:
                shutil.rmtree(where, ignore_errors=True)
        text = " ".join(text.replace(str(work), "").split()).replace("|", "/")
        print(f"| {done} (lease {lease}) | {text} | {verdict} |", flush=True)
        bad += verdict != "yes"
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
