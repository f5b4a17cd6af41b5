#!/usr/bin/env bash
# Runs the tests and measurements of a folder that tests/gpu/carry.sh has made, on a machine with a
# GPU and torch:
#
#     ./run.sh [OUT [PART]...]
#
# OUT: a folder for the results (default: results). PART: programs, sessions, bench; without one,
# all of them. Prints one line for each part; the exit code is 0 only if all cases have passed.
set -uo pipefail
cd "$(dirname "$0")"
out="$(realpath -m "${1:-results}")"
shift || true
parts=("$@")
[[ ${#parts[@]} == 0 ]] && parts=(programs sessions bench)
mkdir -p "$out"
python="${MUSTER_PYTHON:-python3}"

built="$(< torch-version)"
"$python" -c "import torch; exit(not torch.__version__.startswith('$built.'))" || {
  echo "run.sh: the programs are built against torch $built; found:" \
    "$("$python" -c 'import torch; print(torch.__version__)')" >&2
  exit 1
}
# LibTorch, and the libraries of CUDA that were installed with it.
libraries="$("$python" - << 'EOF'
import glob, os, torch
torch_folder = os.path.dirname(torch.__file__)
print(":".join([torch_folder + "/lib", *sorted(glob.glob(torch_folder + "/../nvidia/*/lib"))]))
EOF
)" || exit 1
# For the programs only: Python has libraries of its own.
export MUSTER_GPU_LIBRARIES="$PWD/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MUSTER_GPU_PROGRAMS="$PWD/bin" PYTHONPATH="$PWD:$PWD/site" PYTHONDONTWRITEBYTECODE=1
"$python" - << 'EOF' | tee "$out/machine.txt"
import torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
print("torch", torch.__version__, "on", gpu)
EOF

status=0
for part in "${parts[@]}"; do
  case "$part" in
    programs)
      for program in bin/*_test; do
        name="$(basename "$program")"
        LD_LIBRARY_PATH="$MUSTER_GPU_LIBRARIES" timeout 300 "$program" > "$out/$name.log" 2>&1 ||
          status=1
        count() { grep -cE "^\[ *$1 *\] .*ms\)" "$out/$name.log"; }
        echo "$name: $(count OK) passed, $(count FAILED) failed, $(count SKIPPED) skipped"
      done
      ;;
    sessions)
      shards=4
      running=()
      for ((shard = 0; shard < shards; ++shard)); do
        TEST_TOTAL_SHARDS=$shards TEST_SHARD_INDEX=$shard timeout 580 "$python" -m pytest \
          tests/gpu/sessions_test.py -q -ra -p no:cacheprovider -p tests.bazel \
          --basetemp="$out/tmp-$shard" > "$out/sessions-$shard.log" 2>&1 &
        running+=($!)
      done
      for pid in "${running[@]}"; do wait "$pid" || status=1; done
      rm -rf "$out"/tmp-*
      tail -qn 1 "$out"/sessions-*.log
      ;;
    bench)
      "$python" -m bench.gpu.run --out "$out/bench.md" || status=1
      ;;
    *)
      echo "run.sh: there is no part '$part'; parts: programs, sessions, bench" >&2
      exit 2
      ;;
  esac
done
exit "$status"
