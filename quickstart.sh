#!/usr/bin/env bash
# Installs what is missing, builds, and trains a small byte-level GPT on this machine's licence
# texts with two ranks under a real coordinator and agent. All its files lie in out/.
set -euo pipefail
cd "$(dirname "$0")"
third_party/install.sh

mkdir -p out/bin out/quickstart
echo "== building: [steps done / steps] (7 minutes on 2 cores the first time, then seconds)"
python3 third_party/bazel_progress.py bazel build //client/cli:muster //coordinator:musterd \
  //worker/agent:muster-agent //worker:muster-worker
install -m 755 bazel-bin/client/cli/muster bazel-bin/coordinator/musterd \
  bazel-bin/worker/agent/muster-agent bazel-bin/worker/muster-worker out/bin
export PATH="$PWD/out/bin:$PATH"

echo "== packing the text"
mapfile -t texts < <(find /usr/share/common-licenses -type f | sort)
cd out/quickstart
muster data pack --tokenizer bytes --split 0.9 --out train.bin --out-rest validate.bin \
  "${texts[@]}" | tee pack.txt

echo "== training"
cp ../../deploy/quickstart/licences-gpt.yaml .
muster run licences-gpt.yaml

echo
entropy="$(sed -n 's/^validate.bin.*entropy \([0-9.]*\) .*/\1/p' pack.txt)"
echo "A model that knows only how often each byte comes has the loss $entropy on the validation" \
  "text (its unigram entropy)."

cat <<'E2'

What to try next (in out/quickstart, with out/bin on your PATH):
  edit licences-gpt.yaml (layers, steps, batch) and   muster run licences-gpt.yaml
  start a coordinator and give jobs to it:
    musterd --state state --local-slots 2 &
    export MUSTER_ADDRESS="$PWD/state"
    until muster list; do sleep 0.2; done    # musterd listens
    muster submit licences-gpt.yaml --id first && muster watch first
    muster get first -o json; muster logs first -f; muster stop first
  look into a checkpoint:   muster checkpoints inspect checkpoints/<job>/<step>
  open the weights in Python:
    transformers.AutoModelForCausalLM.from_pretrained("model")
E2
