#!/usr/bin/env python3
"""Making documents of conversations: `muster.data.pack_documents` beside `datasets.map` with
`apply_chat_template` of transformers.

    bench/documents/run.py [--bytes 1000000000] [--rounds 5] [--processes 2]

Makes a JSONL file of conversations with words of the programs on this machine, trains a tokenizer
on it, and takes turns: both make tokens and marks of the same template, which has marks of what is
generated. Prints seconds and the peak memory of all processes of each. bench/README.md has the
method and the figures."""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
)
OURS = """
import sys
import muster.data
made = muster.data.pack_documents(
    sys.argv[1], files=[sys.argv[2]], out=sys.argv[3], processes=int(sys.argv[4]))
print(made.files[0].tokens, made.files[0].trained)
"""
THEIRS = """
import sys
import datasets, transformers
datasets.disable_progress_bars()
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
def encode(row):
    made = tokenizer.apply_chat_template(
        row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return {"input_ids": made["input_ids"], "assistant_masks": made["assistant_masks"]}
rows = datasets.load_dataset("json", data_files=sys.argv[2], split="train", cache_dir=sys.argv[3])
made = rows.map(encode, remove_columns=rows.column_names, num_proc=int(sys.argv[4]))
tokens = made.data.column("input_ids").combine_chunks()
marks = made.data.column("assistant_masks").combine_chunks()
print(len(tokens.flatten()), marks.flatten().to_numpy().sum())
"""


def write_chats(path, size):
    """Writes conversations of 2 to 8 turns of 5 to 120 words."""
    dice = random.Random(1)
    words = []
    for source in sorted(pathlib.Path(json.__file__).parent.parent.glob("*.py")):
        words += source.read_text(encoding="utf-8", errors="ignore").split()
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < size:
            turns = []
            for at in range(2 * dice.randint(1, 4)):
                begin = dice.randrange(len(words) - 120)
                text = " ".join(words[begin : begin + dice.randint(5, 120)])
                turns.append({"role": ("user", "assistant")[at % 2], "content": text})
            file.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")


def make_tokenizer(folder, chats):
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=32000,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    with open(chats, encoding="utf-8") as file:
        model.train_from_iterator((file.readline() for _ in range(3000)), trainer)
    model.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def memory_of(root):
    """The memory of a process and all below it, without what they share."""
    total = 0
    children = [root]
    while children:
        pid = children.pop()
        try:
            for line in open(f"/proc/{pid}/smaps_rollup"):
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    children += [int(one) for one in file.read().split()]
        except OSError:
            continue
    return total


def measured(program, *arguments):
    """The seconds, the peak memory, and what the program printed."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    peak = [0]

    def watch():
        while process.poll() is None:
            peak[0] = max(peak[0], memory_of(process.pid))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = process.communicate()[0]
    watcher.join()
    assert process.returncode == 0
    return time.monotonic() - begin, peak[0], out.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        chats = folder / "chats.jsonl"
        write_chats(chats, options.bytes)
        make_tokenizer(folder, chats)
        results = {"muster": [], "datasets": []}
        for number in range(options.rounds):
            arms = [("muster", OURS), ("datasets", THEIRS)]
            made = {}
            for arm, program in arms if number % 2 == 0 else arms[::-1]:
                out = folder / f"{arm}-{number}"
                seconds, peak, made[arm] = measured(
                    program, folder, chats, out, options.processes
                )
                results[arm].append((seconds, peak))
                print(f"round {number}: {arm}: {seconds:.1f} s, {peak >> 20} MiB, {made[arm]}")
                subprocess.run(["rm", "-rf", out], check=True)
            assert made["muster"] == made["datasets"], made
        ratios = [a[0] / b[0] for a, b in zip(results["muster"], results["datasets"], strict=True)]
        print(f"ratio of the times: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
