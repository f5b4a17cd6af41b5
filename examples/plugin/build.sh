#!/usr/bin/env bash
# Builds a plug-in: build.sh [SOURCE [OUTPUT]], by default focal.cc -> focal.so beside it. The build
# needs the header plugin/muster/plugin.h and the worker's LibTorch: $LIBTORCH, else that of the
# scripts' virtual environment.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source="${1:-$here/focal.cc}"
output="${2:-${source%.cc}.so}"
torch="${LIBTORCH:-$(echo "$HOME"/.cache/muster/venv/lib/python3*/site-packages/torch)}"
[[ -d "$torch/include/ATen" ]] || {
  echo "build.sh: no LibTorch in $torch; set LIBTORCH, or run ./quickstart.sh once" >&2
  exit 1
}
g++ -std=c++20 -O2 -fPIC -shared -Wl,--no-undefined -DAT_PER_OPERATOR_HEADERS \
  -D_GLIBCXX_USE_CXX11_ABI=1 \
  -I"$here/../../plugin" -isystem "$torch/include" \
  -isystem "$torch/include/torch/csrc/api/include" \
  "$source" -L"$torch/lib" -ltorch_cpu -lc10 -o "$output"
echo "$output"
