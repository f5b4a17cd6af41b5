#!/usr/bin/env bash
# Makes a folder with all programs of tests/gpu and bench/gpu, for a machine without Bazel and
# without this repository's libraries. The machine has a GPU, Python, and the torch for CUDA of
# --config=cuda (2.11):
#
#     tests/gpu/carry.sh FOLDER
#
# There, FOLDER/run.sh runs everything (it says how to run a part). The programs are built with
# --config=cuda; shared libraries of Debian lie beside them.
set -euo pipefail
if [[ $# != 1 ]]; then
  echo "usage: tests/gpu/carry.sh FOLDER" >&2
  exit 2
fi
folder="$(realpath -m "$1")"
cd "$(dirname "$0")/../.."

programs=(tests/gpu/muster-rank tests/gpu/device_test worker/comm/conformance_test
  worker/comm/reduce_scatter_conformance_test worker/comm/all_to_all_conformance_test
  worker/comm/nccl/nccl_communicator_test
  # Its code differs with the version of LibTorch.
  worker/models/values_on_demand_test
  worker/muster-worker worker/agent/muster-agent coordinator/musterd client/cli/muster)
targets=()
for program in "${programs[@]}"; do
  targets+=("//$(dirname "$program"):$(basename "$program")")
done
third_party/cuda/bazel.sh build --jobs=2 "${targets[@]}"
built="$(bazel info output_base 2> /dev/null)-cuda/execroot/muster/bazel-out/k8-opt/bin"

rm -rf "$folder"
mkdir -p "$folder"/{bin,lib,site,tests/gpu,tests/parity,tests/process,bench/gpu}
for program in "${programs[@]}"; do
  strip -o "$folder/bin/$(basename "$program")" "$built/$program"
done
# Programs whose stacks may be read keep the names of their functions.
cp "$built"/{tests/gpu/muster-rank,worker/muster-worker} "$folder/bin"
# Debian's libraries, except those that every system has; LibTorch and CUDA are in torch's folder.
for program in "$folder"/bin/*; do ldd "$program"; done | awk '$3 ~ "^/(usr/)?lib/" { print $3 }' |
  sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so' |
  xargs cp -L -t "$folder/lib"

sed -n "s/^__version__ = '\([0-9]*\.[0-9]*\).*/\1/p" "$HOME/.cache/muster/cuda/torch/version.py" \
  > "$folder/torch-version"
cp tests/bazel.py "$folder/tests"
cp tests/gpu/*.py "$folder/tests/gpu"
cp tests/parity/{sampler,checkpoints}.py "$folder/tests/parity"
cp tests/process/harness.py "$folder/tests/process"
cp bench/gpu/*.py "$folder/bench/gpu"
cp bench/interval.py "$folder/bench"
cp tests/gpu/run.sh "$folder"
# Packages of their own, whatever else is called "tests" there.
touch "$folder"/{tests,tests/gpu,tests/parity,tests/process,bench,bench/gpu}/__init__.py
# pytest is Python only.
site="$("$HOME/.cache/muster/venv/bin/python" -c \
  'import pathlib, pytest; print(pathlib.Path(pytest.__file__).parents[1])')"
cp -r "$site"/{pytest,_pytest,pluggy,iniconfig,packaging,pygments} "$folder/site"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
du -sh "$folder"
