"""Runs bazel and shows its progress, for quickstart.sh and test.sh:

    bazel_progress.py bazel [STARTUP OPTIONS] build|test [OPTIONS] [--] TARGETS

On a terminal one line shows the progress and is written again and again. Otherwise a new line is
written at least 30 s after the last. The steps are counted before they begin, because bazel's own
total grows until the end. Other output of bazel is passed on. SIGTERM and SIGINT are passed on,
too, and the exit code is then 128 + signal."""

import os
import re
import signal
import subprocess
import sys
import time

EVERY_SECONDS = 30
# Sequences that move a terminal's cursor, clear lines and set its title.
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
# The begin of a line before which bazel removed its progress.
CLEARED = ("\r", "\x1b")
TIME = re.compile(r"^\(\d\d:\d\d:\d\d\) ")
STEPS = re.compile(r"^\[([\d,]+) / ([\d,]+)\] ?((\d+ / \d+ tests?[^;]*; )?.*)")
BEFORE_STEPS = re.compile(r"^(Loading|Analyzing|Building|Checking cached actions)\b.*")


class Bar:
    """Separates bazel's own progress from its other output, line by line.

    Bazel draws its progress as the last lines of the terminal. The first line has the numbers, each
    other line has a running action. Bazel removes these lines before other output."""

    def __init__(self):
        self._drawn = False
        self._tests = ""
        self._said = ""
        # (steps done, steps that bazel knows, activity); None before the first step.
        self.steps = None

    def message(self, line):
        """Returns the text of a line without progress; None if there is none."""
        text = TIME.sub("", ESCAPES.sub("", line))
        if found := STEPS.match(text):
            self._drawn = True
            done, known = (int(number.replace(",", "")) for number in found.group(1, 2))
            self._tests = found[4] or ""
            self.steps = done, known, found[3]
        elif BEFORE_STEPS.match(text):
            self._drawn = True
        elif self._drawn and not line.startswith(CLEARED):
            # An action that runs.
            if self.steps and text.strip():
                self.steps = *self.steps[:2], self._tests + text.strip()
        elif text.strip() or not line.startswith(CLEARED):
            # Bazel writes the end of the build twice.
            again, self._said = text == self._said and not self._drawn and text.strip(), text
            self._drawn = False
            return None if again else ESCAPES.sub("", line)
        return None


def parted(command):
    """Returns (words before bazel's command, the command, its options, the targets)."""
    words = iter(command)
    start = [next(words)]
    for word in words:
        if not word.startswith("-"):
            break
        start.append(word)
    rest = list(words)
    if "--" in rest:
        at = rest.index("--")
        return start, word, rest[:at], rest[at + 1 :]
    options = [one for one in rest if one.startswith("-")]
    return start, word, options, [one for one in rest if not one.startswith("-")]


def requested(label, targets):
    """Returns True if a target or pattern includes the label."""
    package, _, name = label.partition(":")
    names = {label, f"{package}:all"} | ({package} if package.endswith("/" + name) else set())
    folders = [one.removesuffix("...") for one in targets if one.endswith("/...")]
    return not names.isdisjoint(targets) or any((package + "/").startswith(f) for f in folders)


def count_steps(lines, targets):
    """Counts the actions of `bazel aquery` that the build executes. The archive and the shared
    library of a library are made only if the library itself is asked for."""
    steps = 0
    library = False
    for line in lines:
        if line.startswith("action '"):
            steps += 1
            library = re.match(r"action 'Linking .*\.(a|so)'", line)
        elif library and line.startswith("  Target: "):
            steps -= not requested(line.split()[1], targets)
    return steps


class Started:
    """The running process, to which signals are passed on."""

    def __init__(self):
        self.caught = None
        self._process = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number, _):
        self.caught = number
        if self._process:
            self._process.send_signal(number)

    def start(self, command, **options):
        # The process has a group of its own, so that a signal of the terminal comes once.
        self._process = subprocess.Popen(
            command, text=True, errors="replace", process_group=0, **options
        )
        if self.caught:
            self._process.send_signal(self.caught)
        return self._process


def steps_of(started, command):
    """Returns the number of all steps, including finished steps; 0 if the number is not known."""
    start, _, options, targets = parted(command)
    wanted = " ".join(target for target in targets if not target.startswith("-"))
    unwanted = " ".join(target[1:] for target in targets if target.startswith("-"))
    expression = f"deps(set({wanted}) except set({unwanted}))" if unwanted else f"deps({wanted})"
    options = [one for one in options if not one.startswith("--build_event")]
    options += ["--include_artifacts=false", "--include_commandline=false", "--keep_going"]
    asked = started.start(
        [*start, "aquery", *options, expression],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    lines = asked.communicate()[0].splitlines()
    # One more step writes the state of the workspace.
    return count_steps(lines, targets) + 1 if lines else 0


class Shown:
    """Writes the progress to standard error."""

    def __init__(self, total, out=sys.stderr, clock=time.monotonic):
        self._total, self._out, self._clock = total, out, clock
        self._next = clock() + EVERY_SECONDS / 10
        self._line = False

    def _wipe(self):
        if self._line:
            self._out.write("\r\x1b[K")
            self._line = False

    def message(self, text):
        self._wipe()
        self._out.write(text)
        self._out.flush()

    def steps(self, done, known, what):
        total = max(self._total, known)
        text = f"[{done:,} / {total:,}] {what}"
        if self._out.isatty():
            self._wipe()
            self._out.write(text[: (os.get_terminal_size(self._out.fileno()).columns or 80) - 1])
            self._line = True
            self._out.flush()
        elif self._clock() >= self._next:
            self._next = self._clock() + EVERY_SECONDS
            self.message(text + "\n")

    def end(self):
        self._wipe()
        self._out.flush()


def main():
    command = sys.argv[1:]
    started = Started()
    shown = Shown(steps_of(started, command))
    start, name, options, targets = parted(command)
    options += ["--show_progress", "--curses=yes", "--color=no", "--ui_actions_shown=1"]
    process = started.start([*start, name, *options, "--", *targets], stderr=subprocess.PIPE)
    process.stderr.reconfigure(newline="\n")
    bar = Bar()
    for line in process.stderr:
        if message := bar.message(line):
            shown.message(message)
        elif bar.steps:
            shown.steps(*bar.steps)
    code = process.wait()
    shown.end()
    if started.caught:
        return 128 + started.caught
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
