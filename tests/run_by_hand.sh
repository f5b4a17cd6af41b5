#!/usr/bin/env bash
# Runs Python tests of whole programs without Bazel: `tests/run_by_hand.sh PROGRAMS FILE [pytest
# arguments]`, FILE such as tests/process/chaos_test.py. PROGRAMS holds muster, musterd,
# muster-agent and muster-worker, and the plug-ins that tests load (paced.so, plugin_faults.so),
# where they do.
set -euo pipefail
programs="$(realpath "$1")" file="$2"
shift 2
root="$(realpath "$(dirname "$0")/..")"
python="${MUSTER_PYTHON:-$HOME/.cache/muster/venv/bin/python}"
# Files that Bazel would put into the runfiles.
runfiles="$(mktemp -d)"
trap 'rm -rf "$runfiles"' EXIT
tree="$runfiles/muster"
mkdir -p "$tree"/{client/cli,coordinator,worker/agent,worker/models/plugin}
ln -s "$root"/{proto,bench,docs,examples} "$tree"
cp -r "$root/tests" "$tree/tests"
ln -s "$programs/muster" "$tree/client/cli/muster"
ln -s "$programs/musterd" "$tree/coordinator/musterd"
ln -s "$programs/muster-agent" "$tree/worker/agent/muster-agent"
ln -s "$programs/muster-worker" "$tree/worker/muster-worker"
[[ -e "$programs/paced.so" ]] && ln -s "$programs/paced.so" "$tree/tests/process/paced.so"
[[ -e "$programs/plugin_faults.so" ]] &&
  ln -s "$programs/plugin_faults.so" "$tree/worker/models/plugin/plugin_faults.so"
cd "$tree"
export TEST_SRCDIR="$runfiles" TEST_WORKSPACE=muster PYTHONPATH="$tree" PYTHONDONTWRITEBYTECODE=1
"$python" -m pytest "$tree/$file" --import-mode=importlib --rootdir="$tree" \
  -p no:cacheprovider -p tests.bazel -ra --durations=5 --color=no "$@"
