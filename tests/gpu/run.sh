#!/usr/bin/env bash
# Runs the tests and measurements of a folder that tests/gpu/carry.sh has made, on a machine with a
# GPU and torch:
#
#     ./run.sh [OUT [PART]...]
#
# OUT: a folder for the results (default: results). PART: programs, sessions, cluster, state, bench;
# without one, all of them. The first three run side by side, in less than 5 minutes; the
# measurements run alone: state in about one minute, bench in about two. Prints a few lines for
# each part; the exit code is 0 only if all cases have passed. OUT has these files:
#
#     machine.txt     the GPU, and whether each program starts
#     summary.txt     what was printed
#     failures.txt    what failed, in full
#     logs.tar.gz     all output
#     state.md, bench.md
#     kernels.txt     the kernels of a step of each arm of bench
#
# MUSTER_BENCH: arguments of bench/gpu/run.py; MUSTER_BENCH_SECONDS: the bound of the part "bench".
# MUSTER_PYTHON: python3 if not set. MUSTER_GPU_SLOWER=2: all bounds of time are twice as long.
set -uo pipefail
cd "$(dirname "$0")"
out="$(realpath -m "${1:-results}")"
shift || true
parts=" ${*:-programs sessions cluster state bench} "
for part in $parts; do
  [[ " programs sessions cluster state bench " == *" $part "* ]] && continue
  echo "run.sh: there is no part '$part'; parts: programs, sessions, cluster, state, bench" >&2
  exit 2
done
mkdir -p "$out"
rm -f "$out"/{machine,summary,failures,kernels}.txt "$out"/{bench,state}.md "$out/logs.tar.gz"
python="${MUSTER_PYTHON:-python3}"
slower="${MUSTER_GPU_SLOWER:-1}"
work="$(mktemp -d "${TMPDIR:-/tmp}/muster-gpu-XXXXXX")"
logs="$work/logs"
mkdir "$logs"
trap 'tar -czf "$out/logs.tar.gz" -C "$work" logs; rm -rf "$work"' EXIT
say() { echo "$*" | tee -a "$out/summary.txt"; }

# LibTorch, and the libraries of CUDA that were installed with it.
libraries="$("$python" - << 'END'
import glob, os, torch
torch_folder = os.path.dirname(torch.__file__)
print(":".join([torch_folder + "/lib", *sorted(glob.glob(torch_folder + "/../nvidia/*/lib"))]))
END
)" || exit 1
[[ -d /usr/local/nvidia/lib64 ]] && libraries+=":/usr/local/nvidia/lib64"
# For the programs only: Python has libraries of its own.
export MUSTER_GPU_LIBRARIES="$PWD/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MUSTER_GPU_PROGRAMS="$PWD/bin" PYTHONPATH="$PWD:$PWD/site" PYTHONDONTWRITEBYTECODE=1
export MUSTER_GPU_FAILURES="$out/failures.txt"
# What else is installed there may not fit.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
bounded() {
  local seconds="$1"
  shift
  "$python" -m tests.gpu.bounded "$((seconds * slower))" "$@"
}
carried() {
  local seconds="$1"
  shift
  bounded "$seconds" env LD_LIBRARY_PATH="$MUSTER_GPU_LIBRARIES" "$@"
}
wait_for() {
  local pid failed=0
  for pid in "$@"; do wait "$pid" || failed=1; done
  return "$failed"
}

built="$(< torch-version)"
{
  date -u
  "$python" - << 'END'
import sys, torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
print("torch", torch.__version__, "on", gpu, "with Python", sys.version.split()[0])
END
  nvidia-smi
  ldconfig -p | grep -E 'libcuda\.so|libnvidia-ml'
  echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}, for the programs $MUSTER_GPU_LIBRARIES"
  df -h "$work" /dev/shm
} > "$out/machine.txt" 2>&1
say "$(grep "^torch " "$out/machine.txt" || cat "$out/machine.txt")"
grep -q "^torch $built\." "$out/machine.txt" || {
  say "run.sh: the programs are built against torch $built"
  exit 1
}
# start PROGRAM: shows that it finds its libraries.
start() {
  local words=(--help) code
  [[ $1 == muster-worker ]] && words=(--devices)
  [[ $1 == *_test ]] && words=(--gtest_list_tests)
  carried 60 "bin/$1" "${words[@]}" > "$work/start-$1" 2>&1
  code=$?
  echo "$1 ${words[*]}: exit code $code, $(head -n 1 "$work/start-$1")" >> "$out/machine.txt"
  [[ $code == 0 ]] && return
  say "$1 does not start: exit code $code"
  { echo "==== $1 does not start: exit code $code"; head -c 5000 "$work/start-$1"; echo
    LD_LIBRARY_PATH="$MUSTER_GPU_LIBRARIES" ldd "bin/$1" | grep "not found"; } \
    >> "$out/failures.txt"
}
running=()
for program in bin/*; do
  start "$(basename "$program")" &
  running+=($!)
done
wait_for "${running[@]}"

# ---- Lanes, side by side ----

# program NAME: one that is made of gtest cases.
program() {
  local name="$1" code
  carried 120 "bin/$name" > "$logs/$name.log" 2>&1
  code=$?
  count() { grep -cE "^\[ *$1 *\] .*ms\)" "$logs/$name.log"; }
  say "$name: $(count OK) passed, $(count FAILED) failed, $(count SKIPPED) skipped, code $code"
  [[ $code == 0 ]] && return 0
  { echo "==== $name: $code"; grep -vE "^\[ *(OK|RUN|---*) *\]" "$logs/$name.log" |
    tail -c 20000; } >> "$out/failures.txt"
  return 1
}

programs() {
  local path running=()
  for path in bin/*_test; do
    program "$(basename "$path")" &
    running+=($!)
  done
  wait_for "${running[@]}"
}

# pytest_part NAME SHARDS SECONDS_FOR_A_TEST FILE
pytest_part() {
  local name="$1" shards="$2" shard failed running=()
  export MUSTER_GPU_TEST_SECONDS=$(($3 * slower)) MUSTER_GPU_END=$(($(date +%s) + 190 * slower))
  # Threads of many processes that wait for each other by spinning take the time of all.
  export OMP_NUM_THREADS=2
  # No wait within a test is longer than three quarters of this.
  export TEST_TIMEOUT="$MUSTER_GPU_TEST_SECONDS"
  for ((shard = 0; shard < shards; ++shard)); do
    TEST_TOTAL_SHARDS=$shards TEST_SHARD_INDEX=$shard bounded 275 "$python" -m pytest "$4" -v -ra \
      --durations=5 --import-mode=importlib -p no:cacheprovider -p tests.bazel \
      -p tests.gpu.limits --basetemp="$work/$name-$shard" > "$logs/$name-$shard.log" 2>&1 &
    running+=($!)
  done
  wait_for "${running[@]}"
  failed=$?
  say "$name: $(tail -qn 1 "$logs/$name"-*.log)"
  return "$failed"
}

has() { [[ $parts == *" $1 "* ]]; }
status=0
lanes=()
has programs && { programs & lanes+=($!); }
has sessions && { pytest_part sessions 7 75 tests/gpu/sessions_test.py & lanes+=($!); }
has cluster && { pytest_part cluster 3 75 tests/gpu/cluster_test.py & lanes+=($!); }
wait_for "${lanes[@]}" || status=1

# ---- Measurements, alone ----

# measure NAME SECONDS ARGUMENT...
measure() {
  local name="$1" seconds="$2"
  shift 2
  bounded "$seconds" "$python" -m "$@" --out "$out/$name.md" > "$logs/$name.log" 2>&1 || {
    status=1
    say "$name failed: $(tail -n 1 "$logs/$name.log")"
    { echo "==== $name"; tail -c 10000 "$logs/$name.log"; } >> "$out/failures.txt"
  }
  [[ -f $out/$name.md ]] && say "$(< "$out/$name.md")"
}
has state && measure state 110 bench.gpu.state --seconds 35
# shellcheck disable=SC2086
has bench && measure bench "${MUSTER_BENCH_SECONDS:-160}" bench.gpu.run \
  ${MUSTER_BENCH:---cases gpt2-small --seconds 100} --kernels "$out/kernels.txt"
exit "$status"
