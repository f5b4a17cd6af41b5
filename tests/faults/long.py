"""Runs many seeds of every kind, in pieces that a later call continues.

    python -m tests.faults.long --programs DIR [--plugin paced.so] [--kinds a,b] [--seeds 20]
        [--minutes 9] [--results FILE] [--simulate PROGRAM] [--schedules 100000]
        [--output-base FOLDER] [--packages FOLDER] [--only '*:exported_*']

Each (kind, seed, strategy) that passed is a line of the results file, and is not run again. A
failed one is run again the next time, and its line is replaced. Simulated schedules
(tests/simulation) are the kind "simulated", in pieces; the seed is the first one of the piece. With
--output-base, the kinds "asan" and "tsan" are the tests that tests/asan_long.txt and
tests/tsan_long.txt name, one by one: the strategy is the test's label. The kind "combinations" is
the tests with several factors, in every combination (tests/cases.py): the strategy is the label,
too. The kind "llama_cpp" is the test that runs exported files in llama.cpp. The kind "fuzz" is five
minutes of each target of tests/fuzz, and "fuzz_planted" shows that each finds a planted bug: the
strategy is the target. With --packages, the kind "packages" installs what is in this folder in a
Debian without compiler, trains, and removes it. It needs root; the strategy is what is installed
(tests/package/clean_root.py).
--only leaves out the strategies that do not match the pattern.
Ends with 0 once all have passed, with 3 while some are left, with 1 where one has failed."""

import argparse
import atexit
import datetime
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tests.faults import programs as programs_by_hand

HERE = pathlib.Path(__file__).resolve().parent
# Kinds with as many seeds as asked for; each other kind has a quarter.
MANY = (
    "sigkill",
    "sigterm",
    "partition_proxy",
    "partition_network",
    "enospc_checkpoints",
    "enospc_state",
    "fsync_kill",
)
SANITIZERS = ("asan", "tsan")
COMBINATIONS = "combinations"
FUZZED = {"fuzz": [], "fuzz_planted": ["--planted"]}
FUZZ = HERE.parent / "fuzz/fuzz.py"
PACKAGES = "packages"
# Tests that run only here, each a kind of its own.
OWN_TESTS = {"llama_cpp": "//tests/python:llama_cpp_test"}
INSTALLED = ("debs", "tarball", "wheel")
# Simulated schedules that are played together, about a minute of them.
PIECE = 5000


def simulate(program, first_seed):
    """The violations that a piece of simulated schedules found, and its summary."""
    played = subprocess.run(
        [program, f"--first-seed={first_seed}", f"--schedules={PIECE}"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = played.stdout.splitlines()
    violated = [line for line in lines if line.startswith("seed ")]
    if played.returncode != 0 and not violated:
        violated = [f"ended with {played.returncode}: {played.stderr[-300:]}"]
    return violated, lines[-1:]


def sanitized(output_base, sanitizer, label):
    """Runs `bazel test` of one target for one sanitizer, as ./test.sh does, to its end."""
    return subprocess.run(
        ["nice", "-n", "19", "bazel", f"--output_base={output_base}-{sanitizer}"]
        + ["--max_idle_secs=60", "test", f"--config={sanitizer}"]
        + ["--experimental_convenience_symlinks=ignore", label],
        capture_output=True,
        text=True,
        check=False,
    )


def combined(label):
    """Runs `bazel test` of one target with every combination of its factors, to its end."""
    return subprocess.run(
        ["nice", "-n", "19", "bazel", "test", "--test_env=MUSTER_CASES=every_combination", label],
        capture_output=True,
        text=True,
        check=False,
    )


def tests_with_factors():
    """The labels of the tests that only with every_combination (tests/cases.py) are complete."""
    return [
        f"//{path.parent}:{path.stem}"
        for path in sorted(pathlib.Path("tests").rglob("*_test.py"))
        if path.stem != "cases_test"
        and re.search(r"cases\.(every_value\(|first_ones\([^)]*with_all=)", path.read_text())
    ]


def fuzzed(kind, target):
    """tests/fuzz/fuzz.py of one target, to its end."""
    return subprocess.run(
        [sys.executable, FUZZ, *FUZZED[kind], target], capture_output=True, text=True, check=False
    )


def installed(packages, strategy):
    """tests/package/clean_root.py of one way to install, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tests.package.clean_root", packages, strategy],
        capture_output=True,
        text=True,
        check=False,
    )


def fuzz_targets():
    return sorted(path.stem.removesuffix("_target") for path in FUZZ.parent.glob("*_target.cc"))


def sanitized_tests(sanitizer):
    """The labels of the tests that only this program runs under a sanitizer, without those that
    cannot be built here (of NCCL)."""
    patterns = pathlib.Path(f"tests/{sanitizer}_long.txt").read_text(encoding="utf-8").split()
    tests = f"tests(set({' '.join(patterns)}))"
    left_out = f"attr(tags, '\\b(manual{'|notsan' if sanitizer == 'tsan' else ''})\\b', {tests})"
    label = "'' if 'IncompatiblePlatformProvider' in providers(target) else str(target.label)"
    found = subprocess.run(
        ["bazel", "cquery", f"{tests} except {left_out}", "--output=starlark"]
        + [f"--starlark:expr={label}"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [label.removeprefix("@").removeprefix("@") for label in found.stdout.split()]


class Results:
    """One line for each run: kind, seed, strategy, verdict, seconds, when, the version, what
    happened."""

    def __init__(self, file):
        self._file = file
        self._lines = {}
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                fields = line.split("\t")
                if len(fields) == 8 and fields[0] != "kind":
                    self._lines[tuple(fields[:3])] = fields

    def passed(self, case):
        return self._lines.get(case, [""] * 8)[3] == "passed"

    def add(self, case, verdict, seconds, version, told):
        now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M}"
        self._lines[case] = [
            *case,
            verdict,
            f"{seconds:.1f}",
            now,
            version,
            " ".join(told.split())[:600],
        ]
        head = "kind\tseed\tstrategy\tverdict\tseconds\twhen\tversion\twhat happened"
        order = sorted(
            self._lines.values(), key=lambda fields: (fields[0], int(fields[1]), fields[2])
        )
        # Whole, or not at all.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(
            "\n".join([head, *("\t".join(fields) for fields in order)]) + "\n", encoding="utf-8"
        )
        fresh.rename(self._file)

    def count(self):
        verdicts = [fields[3] for fields in self._lines.values()]
        return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}


def main():
    # SIGTERM raises, so that the processes of a terminated run are ended, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--kinds", help="default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--strategies", default="ddp,fsdp")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--simulate", help="the program tests/simulation:simulate")
    parser.add_argument("--schedules", type=int, default=100000, help="simulated ones")
    parser.add_argument("--output-base", help="Bazel's, beside which the sanitizers have theirs")
    parser.add_argument("--packages", help="the folder with the packages of //deploy/package")
    parser.add_argument("--only", default="*", help="pattern of the strategies that are run")
    parser.add_argument("--version", default="?", help="what is tested, for the results")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results/long.tsv")
    arguments = parser.parse_args()
    plugin = programs_by_hand.use(arguments.plugin)
    from tests.faults import faults, plans, run

    programs = programs_by_hand.check(arguments.programs)
    end = time.monotonic() + 60 * arguments.minutes
    results = Results(arguments.results)
    sanitizers = SANITIZERS if arguments.output_base else ()
    packages = [PACKAGES] if arguments.packages and os.geteuid() == 0 else []
    everything = [*plans.KINDS, *sanitizers, COMBINATIONS, *OWN_TESTS, *FUZZED, *packages]
    kinds = arguments.kinds.split(",") if arguments.kinds else everything
    cases = []
    for kind in kinds:
        if kind in SANITIZERS:
            cases += [(kind, "0", label) for label in sanitized_tests(kind)]
            continue
        if kind == COMBINATIONS:
            cases += [(kind, "0", label) for label in tests_with_factors()]
            continue
        if kind in OWN_TESTS:
            cases.append((kind, "0", OWN_TESTS[kind]))
            continue
        if kind in FUZZED:
            cases += [(kind, "0", target) for target in fuzz_targets()]
            continue
        if kind == PACKAGES:
            cases += [(kind, "0", strategy) for strategy in INSTALLED]
            continue
        seeds = arguments.seeds if kind in MANY else max(1, arguments.seeds // 4)
        cases += [
            (kind, str(seed), strategy)
            for seed in range(arguments.first_seed, arguments.first_seed + seeds)
            for strategy in arguments.strategies.split(",")
        ]
    if arguments.simulate and not arguments.kinds:
        cases += [("simulated", str(first), "-") for first in range(0, arguments.schedules, PIECE)]
    cases = [case for case in cases if fnmatch.fnmatchcase(case[2], arguments.only)]
    left = [case for case in cases if not results.passed(case)]
    # First those that were never played.
    left.sort(key=lambda case: case in results._lines)
    print(
        f"{len(cases)} cases, {len(cases) - len(left)} have passed; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    work = pathlib.Path(tempfile.mkdtemp(prefix="muster-faults-long-"))
    # The folder is removed even if this run is terminated.
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    calm, failed = {}, 0
    for number, case in enumerate(left):
        if time.monotonic() > end:
            break
        kind, seed, strategy = case
        if kind == "simulated":
            begun = time.monotonic()
            violated, notes = simulate(arguments.simulate, int(seed))
            verdict = "FAILED" if violated else "passed"
            told, seconds = " // ".join([*notes, *violated]), time.monotonic() - begun
            results.add(case, verdict, seconds, arguments.version, told)
            print(f"{verdict} {kind} {seed} {seconds:.1f} s: {told[:2000]}", flush=True)
            failed += verdict == "FAILED"
            continue
        if kind in (*SANITIZERS, *FUZZED, COMBINATIONS, *OWN_TESTS, PACKAGES):
            begun = time.monotonic()
            if kind == PACKAGES:
                played = installed(arguments.packages, strategy)
            elif kind == COMBINATIONS or kind in OWN_TESTS:
                played = combined(strategy)
            elif kind in FUZZED:
                played = fuzzed(kind, strategy)
            else:
                played = sanitized(arguments.output_base, kind, strategy)
            verdict = "passed" if played.returncode == 0 else "FAILED"
            told, seconds = (played.stdout + played.stderr)[-2000:], time.monotonic() - begun
            results.add(case, verdict, seconds, arguments.version, told)
            print(f"{verdict} {kind} {strategy} {seconds:.1f} s", flush=True)
            if verdict == "FAILED":
                print(told, flush=True)
            failed += verdict == "FAILED"
            continue
        if strategy not in calm:
            calm[strategy] = run.undisturbed(programs, plugin, work / f"calm-{strategy}", strategy)
        plan = plans.plan(int(seed), kind)
        folder = work / f"{number}"
        try:
            violated, notes, seconds = run.play(
                programs, plugin, folder, plan, calm[strategy], strategy
            )
            verdict = "FAILED" if violated else "passed"
            told = " // ".join([str(plan), *notes, *violated])
        except faults.Skipped as skipped:
            verdict, told, seconds = "skipped", str(skipped), 0.0
        results.add(case, verdict, seconds, arguments.version, told)
        print(
            f"{verdict} {kind} {seed} {strategy} {seconds:.1f} s"
            + (f": {told[:2000]}" if verdict == "FAILED" else ""),
            flush=True,
        )
        failed += verdict == "FAILED"
        shutil.rmtree(folder, ignore_errors=True)
    still = sum(not results.passed(case) for case in cases)
    print(f"{len(cases) - still} of {len(cases)} have passed; {results.count()}")
    return 1 if failed else 3 if still else 0


if __name__ == "__main__":
    sys.exit(main())
