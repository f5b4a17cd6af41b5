#!/usr/bin/env bash
# Installs what the tests need, builds, runs every test, and prints one last line: "N passed, N
# failed". ./test.sh --long [arguments of tests/faults/long.py]: many seeds of faults and simulated
# schedules instead, about 9 minutes of them; again: goes on with what is left
# (tests/faults/results/long.tsv says what has passed).
set -uo pipefail
cd "$(dirname "$0")"
if [[ "${1:-}" == --long ]]; then
  shift
  third_party/install.sh --packages && third_party/install.sh --tests || exit 1
  bazel build //client/cli:muster //coordinator:musterd //worker/agent:muster-agent \
    //worker:muster-worker //tests/faults:paced.so //tests/simulation:simulate || exit 1
  programs="$(mktemp -d)"
  trap 'rm -rf "$programs"' EXIT
  # A copy: a build in the meantime changes nothing.
  cp bazel-bin/{client/cli/muster,coordinator/musterd} \
    bazel-bin/worker/{agent/muster-agent,muster-worker} \
    bazel-bin/tests/{faults/paced.so,simulation/simulate} "$programs" || exit 1
  "$HOME/.cache/muster/venv/bin/python" -m tests.faults.long --programs "$programs" \
    --plugin "$programs/paced.so" --simulate "$programs/simulate" \
    --version "$(git describe --always --dirty 2> /dev/null || echo unknown)" "$@"
  exit
fi
third_party/install.sh --packages || exit 1
# pip keeps one core busy the first time; what needs no LibTorch compiles meanwhile.
third_party/install.sh --tests &
installing=$!
bazel build --keep_going //client/... //coordinator:musterd //worker/agent/... || true # told below
wait "$installing" || exit 1

python="$HOME/.cache/muster/venv/bin/python"
status=0
run() {
  echo "== bazel test $*" >&2
  bazel test --keep_going "$@" || status=1
  # Counted at once: the next configuration writes its results to the same place.
  "$python" tests/count_cases.py --add "$counts" || status=1
}
counts="$(mktemp)"
trap 'rm -f "$counts"' EXIT
# What asan.txt names runs there and not a second time without: twice compiled and run is a third of
# the whole time.
run -- //... $(sed 's/^/-/' tests/asan.txt)
run --config=asan $(<tests/asan.txt)
# tsan.txt: all that has threads. notsan: tests in which ThreadSanitizer sees nothing but Debian's
# libraries, which are not instrumented.
run --config=tsan --test_tag_filters=-notsan --build_tag_filters=-notsan $(<tests/tsan.txt)
"$python" tests/count_cases.py --total "$counts" || status=1
exit $status
