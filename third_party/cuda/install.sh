#!/usr/bin/env bash
# Installs the libraries of `--config=cuda` in ~/.cache/muster/cuda: the CUDA build of LibTorch 2.11
# and NCCL, from PyPI (1.6 GB). CUDA's toolkit must be in /usr/local/cuda. Does nothing if
# everything is installed. No GPU is needed.
set -euo pipefail

folder="$HOME/.cache/muster/cuda"
# The versions that docs/how-to/gpu.md names.
wheels=(torch==2.11.0 nvidia-nccl-cu13==2.28.9 nvidia-cublas==13.10.0.20
  nvidia-cusparse==12.9.4.2 nvidia-cusolver==12.4.1.2)
[[ "$(cat "$folder/installed" 2>/dev/null)" == "${wheels[*]}" ]] && exit 0
[[ -e /usr/local/cuda/include/cuda_runtime_api.h ]] || {
  echo "install.sh: /usr/local/cuda has no headers; install CUDA's toolkit 13.0" >&2
  exit 1
}
rm -rf "$folder"
mkdir -p "$folder/download" "$folder/wheels"
for wheel in "${wheels[@]}"; do
  echo "downloading $wheel" >&2
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux_2_18_x86_64 \
    --dest "$folder/download" "$wheel"
done
for file in "$folder"/download/*.whl; do
  python3 -m zipfile -e "$file" "$folder/wheels"
  rm "$file"
done
ln -s wheels/torch "$folder/torch"
echo "${wheels[*]}" > "$folder/installed"
