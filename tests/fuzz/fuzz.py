#!/usr/bin/env python3
"""Fuzzes the readers of files with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.

    tests/fuzz/fuzz.py [--seconds 300] [--planted] [--keep] [TARGET ...]

Each target runs for so many seconds on its corpus (tests/fuzz/corpus). An input that crashes the
target, or takes longer than 10 s or more than 2 GB, is kept in the current folder, and the exit
code is 1. --planted: instead, breaks each reader in one place, in a copy of its source, and shows
that its target finds that within 60 s. --keep: adds to the corpus a few inputs that reach new code.
Needs clang and libclang-rt-14-dev (third_party/install.sh --tests)."""

import argparse
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
STATUS = ["common/status/*.cc"]
# With mapped_file.cc: what opens files.
FILES = ["common/files/*.cc", "common/activity/*.cc"]
SAFETENSORS = ["common/safetensors/parse.cc", "common/safetensors/plan.cc"] + [
    "common/safetensors/safetensors.cc",
    "common/safetensors/strict_json.cc",
    "common/filekind/*.cc",
    "common/utf8/*.cc",
]
PICKLE = ["common/torchfile/pickle_reader.cc", "common/torchfile/pickle_document.cc"]
SOURCES = {
    "exported": [
        f"worker/models/exported/{name}.cc"
        for name in ("argument", "graph", "input", "json_fields", "manifest", "memory_uses")
        + ("python_function", "unit_reader")
    ]
    + ["worker/models/allowed_operators.cc", "worker/models/batch.cc"]
    + ["common/safetensors/strict_json.cc"],
    "idx": ["worker/data/idx.cc"],
    "manifest": ["common/manifest/*.cc", "common/problems/*.cc", "common/trainability/*.cc"]
    + ["common/glob/*.cc", "common/jobfile/near_name.cc"]
    + SAFETENSORS
    + FILES,
    "npy": ["worker/data/npy.cc"],
    "pickle": PICKLE + SAFETENSORS + FILES,
    "safetensors": SAFETENSORS + FILES,
    "torch_archive": ["common/torchfile/torch_archive.cc"] + PICKLE + SAFETENSORS + FILES,
}
# The place, what stands there, and what is planted.
PLANTED = {
    "exported": (
        "worker/models/exported/argument.cc",
        "if (found != by_name_.end()) return found->second;",
        "return found == by_name_.end() ? 1 << 20 : found->second;",
    ),
    "idx": (
        "worker/data/idx.cc",
        "overflow |= __builtin_mul_overflow(",
        "__builtin_mul_overflow(",
    ),
    "manifest": (
        "common/manifest/complete.cc",
        "if (files.count(piece.file) == 0) {",
        "if (false) {",
    ),
    "npy": ("worker/data/npy.cc", "if (length > size - start) {", "if (false) {"),
    "pickle": (
        "common/torchfile/pickle_reader.cc",
        "if (size > bytes_.size() - at_) {",
        "if (false) {",
    ),
    "safetensors": ("common/safetensors/parse.cc", "if (length > size - 8) {", "if (false) {"),
    "torch_archive": (
        "common/torchfile/torch_archive.cc",
        "if (data > file_.size() || entry.bytes > file_.size() - data) {",
        "if (false) {",
    ),
}
# The targets that use LibTorch, from the wheel of the tests.
WITH_TORCH = ("exported",)
TORCH = pathlib.Path.home() / ".cache/muster/venv/lib/python3.11/site-packages/torch"
# The size of an input in the corpus, in bytes; and the number of found inputs that are kept.
LARGEST, KEPT = 2048, 40
SANITIZE = "-fsanitize=fuzzer-no-link,address,undefined"
FLAGS = ["-std=c++20", "-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def sources(target):
    found = [ROOT / f"tests/fuzz/{target}_target.cc"]
    for pattern in SOURCES[target] + STATUS:
        found += [path for path in sorted(ROOT.glob(pattern)) if not path.stem.endswith("_test")]
    return list(dict.fromkeys(found))


class Build:
    """Objects and programs in one folder."""

    def __init__(self, folder):
        self.folder = folder

    def compile(self, source, contents=None):
        """The object of a source, or of these contents in its place."""
        name = str(source.relative_to(ROOT)).replace("/", "_") + (".planted" if contents else "")
        made = self.folder / (name + ".o")
        if made.exists():
            return made
        text = self.folder / (name + ".cc")
        if contents is not None:
            text.write_text(contents)
        run(
            "clang++",
            *FLAGS,
            SANITIZE,
            # LibTorch is not instrumented, so its types cannot be checked.
            "-fno-sanitize=vptr",
            f"-I{ROOT}",
            "-isystem",
            TORCH / "include",
            "-isystem",
            TORCH / "include/torch/csrc/api/include",
            "-c",
            text if contents is not None else source,
            "-o",
            made,
        )
        return made

    def program(self, target, planted=None):
        objects = []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            of_source = {
                source: pool.submit(
                    self.compile, source, planted[1] if planted and planted[0] == source else None
                )
                for source in sources(target)
            }
            objects = [made.result() for made in of_source.values()]
        libraries = run(
            *("pkg-config", "--libs", "absl_statusor", "absl_str_format", "absl_synchronization"),
            *("absl_time", "libxxhash", "zlib"),
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.split()
        made = self.folder / (target + ("-planted" if planted else ""))
        run(
            "clang++",
            "-fsanitize=fuzzer,address,undefined",
            *objects,
            "-o",
            made,
            *libraries,
            *(self.torch() if target in WITH_TORCH else []),
        )
        return made

    @staticmethod
    def torch():
        lib = TORCH / "lib"
        return [f"-L{lib}", f"-Wl,-rpath,{lib}", "-ltorch", "-ltorch_cpu", "-lc10"]


def fuzz(program, target, seconds, work, found):
    """The exit code of libFuzzer, and the seconds that it ran."""
    work.mkdir(exist_ok=True)
    began = time.monotonic()
    done = subprocess.run(
        [
            program,
            work,
            CORPUS / target,
            f"-max_total_time={seconds}",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-max_len=65536",
            f"-artifact_prefix={found}/{target}-",
            "-print_final_stats=1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, time.monotonic() - began, done.stdout


def keep(program, target, folder):
    """The corpus keeps what a person has named, and a few inputs that reach the rest of the code:
    libFuzzer names them by their hash."""
    small = folder / f"small-{target}"
    small.mkdir()
    named = folder / f"named-{target}"
    named.mkdir()
    for source in (CORPUS / target, folder / f"work-{target}"):
        for one in source.iterdir():
            by_hash = len(one.name) == 40
            if one.stat().st_size <= LARGEST or not by_hash:
                shutil.copy(one, (small if by_hash else named) / one.name)
            if source == CORPUS / target and by_hash:
                one.unlink()
    run(
        *(program, "-set_cover_merge=1", named, small),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Evenly over their hashes.
    found = sorted(one for one in named.iterdir() if len(one.name) == 40)
    for one in found[:: max(1, len(found) // KEPT)][:KEPT]:
        shutil.copy(one, CORPUS / target / one.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(SOURCES))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - SOURCES.keys():
        parser.error(f"no target {', '.join(sorted(unknown))}; targets: {', '.join(SOURCES)}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-fuzz-"))
    failed = False
    try:
        build = Build(folder)
        for target in arguments.targets or SOURCES:
            planted = None
            if arguments.planted:
                place, text, other = PLANTED[target]
                contents = (ROOT / place).read_text()
                if contents.count(text) != 1:
                    raise SystemExit(f"{place}: expected once: {text}")
                planted = (ROOT / place, contents.replace(text, other))
            program = build.program(target, planted)
            found = folder if arguments.planted else pathlib.Path.cwd()
            code, seconds, said = fuzz(
                program,
                target,
                60 if arguments.planted else arguments.seconds,
                folder / f"work-{target}",
                found,
            )
            counts = [line for line in said.splitlines() if "number_of_executed_units" in line]
            runs = counts[0].split()[-1] if counts else "?"
            right = (code != 0) == arguments.planted
            failed |= not right
            print(
                f"{target}: {'planted bug ' if arguments.planted else ''}"
                f"{'found' if code != 0 else 'nothing found'} in {seconds:.0f} s, {runs} inputs",
                flush=True,
            )
            if not right and code != 0:
                print(said[-3000:], flush=True)
            if arguments.keep and code == 0:
                keep(program, target, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
