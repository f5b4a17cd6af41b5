#!/usr/bin/env bash
# Installs the missing parts that building and running Muster needs. These are Debian packages
# (through sudo if necessary) and a virtual environment with PyTorch's wheel, which is also the C++
# distribution. There is no such environment if $LIBTORCH names a LibTorch. `--tests` adds the
# packages that the tests use. `--long` builds what only ./test.sh --long uses, in an environment of
# its own. `--packages` installs only Debian's packages. Does nothing if everything is installed.
set -euo pipefail

packages=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib g++ git
  libabsl-dev libcli11-dev libcurl4-openssl-dev libgloo-dev libgmock-dev libgrpc++-dev libgtest-dev
  libpcre2-dev libprotobuf-dev libspdlog-dev libsqlite3-dev libssl-dev libutf8proc-dev libxxhash-dev
  libyaml-cpp-dev mold nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler
  protobuf-compiler-grpc python3 python3-venv zlib1g-dev
)
# Programs for the tests: the fault suite cuts networks and delays system calls, Clang checks
# guarded members and fuzzes readers, Debian packages are made and tried in roots of their own, and
# Prometheus scrapes metrics. (Where systemd runs, Debian's package starts a Prometheus of its own
# on port 9090, which the tests do not use.)
test_packages=(clang debootstrap dpkg-dev iproute2 libclang-rt-14-dev prometheus strace)
[[ "${1:-}" == --tests ]] && packages+=("${test_packages[@]}")
# Exact versions, because the tests' tolerances were measured with them.
wheels=(torch==2.13.0 numpy)
test_wheels=(
  safetensors==0.8.0 transformers==5.23.0 grpcio-tools==1.85.1 pytest==9.2.0 pandas==3.1.1
  xxhash==4.1.0 tokenizers==0.23.3 datasets==5.2.0 mypy==2.4.1 types-protobuf==7.35.1.20260906
  tensorboard==2.21.0 tree-sitter==0.26.1 tree-sitter-cpp==0.23.4 accelerate==1.15.0 peft==0.21.2
  mkdocs==1.6.1 mkdocs-material==9.8.2 trl==1.16.0 gguf==0.19.0
)
[[ "${1:-}" == --tests ]] && wheels+=("${test_wheels[@]}")

# llama.cpp runs exported files in the tests. pip builds it from source, about 10 minutes.
long_wheels=(llama-cpp-python==0.3.36)

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] ||
    missing+=("$package")
done
if ((${#missing[@]})); then
  echo "installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || {
      echo "install.sh: not root and no sudo; as root: apt-get install ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[[ "${1:-}" == --packages ]] && exit 0
if [[ -n "${LIBTORCH:-}" && "${1:-}" != --tests ]]; then exit 0; fi

# Installs wheels into a virtual environment, unless all of them are there.
install_wheels() {
  local venv="$1" stamp="$1/installed" installed wheel one
  shift
  installed="$(cat "$stamp" 2>/dev/null || true)"
  for wheel in "$@"; do
    [[ " $installed " == *" $wheel "* ]] && continue
    echo "installing $* into $venv" >&2
    mkdir -p "$(dirname "$venv")"
    [[ -x "$venv/bin/python" ]] || python3 -m venv "$venv"
    # torch comes first, so that no other package installs a newer torch. pip would compile all of
    # it on one core.
    for one in "$@"; do "$venv/bin/pip" install -q --no-compile "$one"; done
    # a package may hold what is no Python 3
    "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >/dev/null || true
    echo "$*" >"$stamp"
    return
  done
}

if [[ "${1:-}" == --long ]]; then
  install_wheels "$HOME/.cache/muster/llama-cpp" "${long_wheels[@]}"
else
  install_wheels "$HOME/.cache/muster/venv" "${wheels[@]}"
fi
