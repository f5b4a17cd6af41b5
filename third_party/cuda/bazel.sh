#!/usr/bin/env bash
# Bazel with --config=cuda: third_party/cuda/bazel.sh build //worker/comm/nccl/...
# This build has an output base of its own, so that the build for CPUs is kept.
set -euo pipefail
cd "$(dirname "$0")/../.."
third_party/cuda/install.sh
command="$1"
shift
base="$(bazel info output_base 2>/dev/null)-cuda"
exec bazel --output_base="$base" --max_idle_secs=60 "$command" --config=cuda \
  --experimental_convenience_symlinks=ignore "$@"
