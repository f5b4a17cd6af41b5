#!/bin/bash
# Runs pytest on the given file as a Bazel test: `run_pytest.sh FILE [pytest arguments]`.
# Python: $MUSTER_PYTHON, else that of the cache that test.sh fills.
set -euo pipefail
python="${MUSTER_PYTHON:-$HOME/.cache/muster/venv/bin/python}"
if [[ ! -x "$python" ]]; then
  echo "run_pytest.sh: no Python at $python; ./test.sh makes it, or set MUSTER_PYTHON" >&2
  exit 1
fi
root="$TEST_SRCDIR/$TEST_WORKSPACE"
file="$root/$1"
shift
cd "$root"
export PYTHONPATH="$root" PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest "$file" --import-mode=importlib --rootdir="$root" -p no:cacheprovider \
  -p tests.bazel --basetemp="$TEST_TMPDIR/pytest" -o tmp_path_retention_policy=failed \
  --junitxml="$XML_OUTPUT_FILE" \
  -ra --durations=5 --color=no "$@"
