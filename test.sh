#!/usr/bin/env bash
# Installs what the tests need, builds, runs the tests, and prints one last line: "N passed, N
# failed".
#   ./test.sh         what a change must pass before it is committed. It leaves out the tests with
#                     the tag "all": whole programs under faults, every command of the guides, and
#                     Clang's analysis of locks.
#   ./test.sh --all   all tests, with every three values of their factors together and every seed
#                     (tests/cases.py), and under AddressSanitizer, UndefinedBehaviorSanitizer and
#                     ThreadSanitizer those that tests/asan.txt and tests/tsan.txt name. CI runs
#                     this, so nothing lands without it.
#   ./test.sh --long [arguments of tests/faults/long.py]
#                     many seeds of faults and simulated schedules, every combination of factors,
#                     the sanitizers over code that includes LibTorch, exported files in
#                     llama.cpp, and the packages installed in a Debian without compiler, about 9
#                     minutes of them;
#                     again: goes on with what is left (tests/faults/results/long.tsv says what
#                     has passed).
set -uo pipefail
cd "$(dirname "$0")"

# Prints the free GiB where Bazel and the tests write.
free_disk() {
  df --output=avail --block-size=1G "$1" | tail -1 | tr -d ' '
}

# Runs Bazel, with lines that show its progress. A signal ends the script, too.
bazel_with_progress() {
  local code=0
  python3 third_party/bazel_progress.py bazel "$@" || code=$?
  ((code < 128)) || exit "$code"
  return "$code"
}

# Runs Bazel for one sanitizer, asan or tsan. This build has an output base of its own, so that the
# plain build is kept. On a small disk the cache keeps no second copy of the build.
sanitizer() {
  local name="$1" command="$2" cache=()
  shift 2
  (($(free_disk "$output_base") >= 20)) || cache=(--disk_cache=)
  bazel_with_progress --output_base="$output_base-$name" --max_idle_secs=60 "$command" \
    --config="$name" --experimental_convenience_symlinks=ignore "${cache[@]}" "$@"
}

if [[ "${1:-}" == --long ]]; then
  shift
  third_party/install.sh --packages && third_party/install.sh --tests &&
    third_party/install.sh --long || exit 1
  bazel build //client/cli:muster //coordinator:musterd //worker/agent:muster-agent \
    //worker:muster-worker //tests/process:paced.so //tests/simulation:simulate \
    //deploy/package:wheel //deploy/package:tarball //deploy/package:deb_muster \
    //deploy/package:deb_muster-agent || exit 1
  programs="$(mktemp -d)"
  trap 'rm -rf "$programs"' EXIT
  # A copy, so that a build in the meantime changes nothing.
  cp bazel-bin/{client/cli/muster,coordinator/musterd} \
    bazel-bin/worker/{agent/muster-agent,muster-worker} \
    bazel-bin/tests/{process/paced.so,simulation/simulate} "$programs" || exit 1
  mkdir "$programs/packages"
  cp bazel-bin/deploy/package/*.{whl,tar.gz,deb} "$programs/packages" || exit 1
  "$HOME/.cache/muster/venv/bin/python" -m tests.faults.long --programs "$programs" \
    --packages "$programs/packages" \
    --plugin "$programs/paced.so" --simulate "$programs/simulate" \
    --output-base "$(bazel info output_base)" \
    --version "$(git describe --always --dirty 2> /dev/null || echo unknown)" "$@"
  exit
fi

options=()
sanitizers=()
plain=(-- //...)
case "${1:-}" in
  "") options=(--test_tag_filters=-all --build_tag_filters=-all) ;;
  --all)
    sanitizers=(asan tsan)
    options=(--test_env=MUSTER_CASES=all)
    # Tests that asan.txt names run with the sanitizers, and not a second time without.
    plain+=($(sed 's/^/-/' tests/asan.txt))
    ;;
  *)
    echo "test.sh: there is no option '$1'; options: --all, --long" >&2
    exit 2
    ;;
esac

third_party/install.sh --packages || exit 1
# pip keeps one core busy the first time. Targets without LibTorch compile meanwhile.
third_party/install.sh --tests &
installing=$!
bazel_with_progress build --keep_going //client/... //coordinator:musterd //worker/agent/... ||
  true # told below
wait "$installing" || exit 1

python="$HOME/.cache/muster/venv/bin/python"
asan=($(<tests/asan.txt))
# tsan.txt names tests that start threads. The tag notsan is for tests in which ThreadSanitizer sees
# only Debian's libraries, which are not instrumented.
tsan=(--test_tag_filters=-notsan --build_tag_filters=-notsan $(<tests/tsan.txt))

# Many tests start processes and wait for them, so three tests at a time keep two cores busy.
parallel=(--jobs=4 --local_cpu_resources=2 --local_test_jobs=3)

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
status=0
# Prints the results of `bazel test` of one configuration.
count() {
  "$python" tests/count_cases.py --add "$work/results" "$1" "$work/$1.json" || status=1
}

# The list is asked for here, because bazel answers no question while it tests.
output_base="$(bazel info output_base)" || exit 1
echo "== plain, $(free_disk "$output_base") GiB of disk are free" >&2
bazel_with_progress test --keep_going "${parallel[@]}" \
  --build_event_json_file="$work/plain.json" "${options[@]}" "${plain[@]}" || status=1
count plain
for name in "${sanitizers[@]}"; do
  echo "== $name, $(free_disk "$output_base") GiB of disk are free" >&2
  declare -n targets="$name"
  sanitizer "$name" test --keep_going "${parallel[@]}" --build_event_json_file="$work/$name.json" \
    "${targets[@]}" || status=1
  count "$name"
done
if (($(free_disk "$output_base") < 2)); then
  echo "test.sh: the disk of $output_base is full; a whole run needs about 15 GiB" >&2
fi
"$python" tests/count_cases.py --total "$work/results" || status=1
exit $status
