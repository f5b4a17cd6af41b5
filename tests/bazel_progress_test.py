"""Tests of the output of quickstart.sh and test.sh while bazel runs."""

import io
import signal
import subprocess
import sys

from tests.bazel import runfile
from third_party import bazel_progress

UP = "\r"


def test_progress_is_told_from_the_rest():
    bar = bazel_progress.Bar()
    said = [
        ("(04:00:00) Loading: \n", None, None),
        (UP + "(04:00:00) Analyzing: 4 targets\n", None, None),
        ("    currently loading: x\n", None, None),
        (UP + UP + "(04:00:01) [1 / 2] Compiling x.cc; 0s\n", None, "Compiling x.cc; 0s"),
        (UP + UP + "(04:00:02) \n", None, ...),
        (UP + "(04:00:02) ERROR: x.cc failed\n", "(04:00:02) ERROR: x.cc failed\n", ...),
        ("    5 | int main( {\n", "    5 | int main( {\n", ...),
        ("\n", "\n", ...),
        ("[1,002 / 2,003] 3 / 7 tests; 2 actions, 1 running\n", None, ...),
        ("    Testing //x:y; 1s local\n", None, "3 / 7 tests; Testing //x:y; 1s local"),
    ]
    for line, message, doing in said:
        assert bar.message(line) == message
        if doing is not ...:
            assert (bar.steps and bar.steps[2]) == doing
    assert bar.steps[:2] == (1002, 2003)


def test_what_a_build_makes_is_counted():
    lines = [
        "action 'Compiling a/a.cc'",
        "  Target: //a:a",
        "action 'Linking a/liba.so'",
        "  Target: //a:a",
        "action 'Linking a/liba.a'",
        "  Target: //a:a",
        "action 'Linking a/a_test'",
        "  Target: //a:a_test",
    ]
    assert bazel_progress.count_steps(lines, ["//a:a_test"]) == 2
    assert bazel_progress.count_steps(lines, ["//a/..."]) == 4


def test_lines_are_far_apart_and_their_total_stays():
    out, now = io.StringIO(), [0.0]
    shown = bazel_progress.Shown(30, out, lambda: now[0])
    for second in range(70):
        now[0] = float(second)
        shown.steps(second // 10, 10 + second // 10, "Compiling")
        if second == 40:
            shown.message("ERROR: one\n")
    assert out.getvalue().splitlines() == [
        "[0 / 30] Compiling",
        "[3 / 30] Compiling",
        "ERROR: one",
        "[6 / 30] Compiling",
    ]


FAKE = """#!/bin/sh
case "$*" in
  *aquery*)
    echo "action 'Compiling a.cc'"
    ;;
  *)
    echo "$@"
    echo "ERROR: wrong" >&2
    trap 'echo terminated; exit 8' TERM
    case "$*" in *//waits*) kill -TERM $PPID; while :; do sleep 0.1; done ;; esac
    exit 3
    ;;
esac
"""


def run(folder, *words):
    bazel = folder / "bazel"
    bazel.write_text(FAKE)
    bazel.chmod(0o755)
    script = runfile("third_party/bazel_progress.py")
    done = subprocess.run(
        [sys.executable, script, bazel, *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_bazels_code_and_words_are_passed_on(tmp_path):
    code, out, said = run(tmp_path, "--output_base=x", "test", "-k", "--", "//a", "-//b")
    assert (code, said) == (3, "ERROR: wrong\n")
    assert out.startswith("--output_base=x test -k --show_progress ")
    assert out.endswith(" -- //a -//b\n")


def test_a_signal_is_passed_on(tmp_path):
    code, out, _ = run(tmp_path, "build", "//waits")
    assert code == 128 + signal.SIGTERM
    assert out.endswith("terminated\n")
