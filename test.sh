#!/usr/bin/env bash
# Installs what the tests need, builds, runs every test, and prints one last line: "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")"
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
# What asan.txt names runs there and not a second time without: twice compiled and run is a third of the whole time.
run -- //... $(sed 's/^/-/' tests/asan.txt)
run --config=asan $(<tests/asan.txt)
# tsan.txt: all that has threads. notsan: tests in which ThreadSanitizer sees nothing but Debian's libraries, which are not instrumented.
run --config=tsan --test_tag_filters=-notsan --build_tag_filters=-notsan $(<tests/tsan.txt)
"$python" tests/count_cases.py --total "$counts" || status=1
exit $status
