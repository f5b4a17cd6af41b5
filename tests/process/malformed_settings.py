"""Settings that cannot work, and job files that cannot be read."""

import json

from tests.process import inputs
from tests.process.malformed_case import case, changed_job

INFINITE = float("inf")

# ---- Schedules ----


def schedule(name, changes, path, expected, found):
    changed_job(f"schedule-{name}", "rows", {"schedule": changes}, path, expected, found)


schedule(
    "warmup-beyond-the-job",
    {"warmup_cosine": {"warmup_steps": 7}},
    "schedule.warmup_cosine.warmup_steps",
    "the steps of all fit stages, 6",
    "found 7",
)
schedule(
    "warmup-beyond-total",
    {"linear": {"warmup_steps": 9, "total_steps": 8}},
    "schedule.linear.warmup_steps",
    "at most total_steps, 8",
    "found 9",
)
schedule(
    "no-steps",
    {"linear": {"total_steps": 0}},
    "schedule.linear.total_steps",
    "1 or more",
    "found 0",
)
schedule(
    "ratio-above-one",
    {"linear": {"min_ratio": 1.5}},
    "schedule.linear.min_ratio",
    "0 to 1",
    "found 1.5",
)
schedule(
    "step-of-zero",
    {"step": {"step_size": 0}},
    "schedule.step.step_size",
    "1 or more",
    "missing or 0",
)
schedule(
    "gamma-of-zero",
    {"step": {"step_size": 2, "gamma": 0}},
    "schedule.step.gamma",
    "above 0",
    "found 0",
)
schedule(
    "rise-of-all",
    {"one_cycle": {"pct_start": 1}},
    "schedule.one_cycle.pct_start",
    "below 1",
    "found 1",
)
schedule(
    "rise-of-nothing",
    {"one_cycle": {"pct_start": 0}},
    "schedule.one_cycle.pct_start",
    "above 0",
    "found 0",
)
schedule(
    "division-by-zero",
    {"one_cycle": {"div_factor": 0}},
    "schedule.one_cycle.div_factor",
    "1 or more",
    "found 0",
)
schedule(
    "three-phases-overlap",
    {"one_cycle": {"pct_start": 0.8, "three_phase": True}},
    "schedule.one_cycle.pct_start",
    "at most 0.5",
    "found 0.8",
)
schedule(
    "anneal-unknown",
    {"one_cycle": {"anneal": "cosine"}},
    "schedule.one_cycle.anneal",
    "cos, linear",
    "'cosine'",
)
schedule(
    "two-at-once", {"constant": {}, "linear": {}}, "schedule.linear", "only one of", "has constant"
)
schedule("unknown", {"cosine": {}}, "schedule.cosine", "warmup_cosine", "unknown key")

# ---- Groups, loss, precision ----

GROUPS = "optimizer.groups"


def groups(name, group, path, expected, found, by="reading"):
    changed_job(f"groups-{name}", "rows", {GROUPS: [group]}, path, expected, found, by)


groups(
    "that-match-nothing",
    {"match": "nobody*", "weight_decay": 0},
    "optimizer.groups[0].match",
    "the parameters are: layers.0.weight",
    "'nobody*', which matches none",
    by="session",
)
groups(
    "without-a-pattern", {"weight_decay": 0}, "optimizer.groups[0].match", "a pattern", "is missing"
)
groups(
    "negative-decay",
    {"match": "*", "weight_decay": -1},
    "optimizer.groups[0].weight_decay",
    "0 or more",
    "found -1",
)
groups(
    "negative-rate",
    {"match": "*", "lr_scale": -0.5},
    "optimizer.groups[0].lr_scale",
    "0 or more",
    "found -0.5",
)
groups(
    "infinite-rate",
    {"match": "*", "lr_scale": INFINITE},
    "optimizer.groups[0].lr_scale",
    "a finite number",
    "found '.inf'",
)
groups(
    "that-set-nothing",
    {"match": "*"},
    "optimizer.groups[0]",
    "weight_decay, lr_scale",
    "sets nothing",
)
groups("that-are-a-text", "*bias", "optimizer.groups[0]", "a mapping", "the text '*bias'")
changed_job(
    "nesterov-without-momentum",
    "rows",
    {"optimizer.sgd.nesterov": True},
    "optimizer.sgd.nesterov",
    "with momentum above 0",
    "found true",
)
changed_job(
    "loss-too-smooth",
    "rows",
    {"loss": {"cross_entropy": {"label_smoothing": 1}}},
    "loss.cross_entropy.label_smoothing",
    "below 1",
    "found 1",
)
changed_job(
    "loss-mse-of-tokens",
    "tokens",
    {"loss": {"mse": {}}},
    "loss",
    "allowed: cross_entropy",
    "found mse",
)
changed_job(
    "loss-mse-of-classes",
    "rows",
    {"loss": {"mse": {}}},
    "rows.safetensors",
    "expected float32",
    "found int64",
    by="session",
)
changed_job(
    "loss-of-a-plugin-that-has-one",
    "plugin",
    {"loss": {"cross_entropy": {}}},
    "loss",
    "allowed: no `loss`",
    "a loss of its own",
    by="session",
)
changed_job(
    "loss-scale-without-float16",
    "rows",
    {"loss_scale": {"initial": 2}},
    "loss_scale",
    "only precision float16",
    "is given",
)
changed_job(
    "loss-scale-that-grows-down",
    "rows",
    {"precision": "float16", "loss_scale": {"growth_factor": 0.5}},
    "loss_scale.growth_factor",
    "above 1",
    "found 0.5",
)
changed_job(
    "loss-scale-that-backs-up",
    "rows",
    {"precision": "float16", "loss_scale": {"backoff_factor": 2}},
    "loss_scale.backoff_factor",
    "below 1",
    "found 2",
)
changed_job(
    "precision-unknown",
    "rows",
    {"precision": "int8"},
    "precision",
    "float32, bfloat16, float16",
    "'int8'",
)
changed_job(
    "learning-rate-that-diverges",
    "rows",
    {"optimizer": {"sgd": {"lr": 1e38}}, "on_nan": "fail"},
    "step 2",
    "check the learning rate",
    "not finite on rank 0",
    by="session",
)
changed_job(
    "llama-odd-heads",
    "llama",
    {"model.llama.kv_heads": 3},
    "model.llama.kv_heads",
    "a divisor of heads, 4",
    "found 3",
)
changed_job(
    "llama-odd-width",
    "llama",
    {"model.llama.width": 20},
    "model.llama.heads",
    "width / heads even",
    "a head of 5",
)
changed_job(
    "convnet-flat",
    "idx",
    {"model.convnet.inputs": [64]},
    "model.convnet.inputs",
    "3 numbers",
    "found a list of 1",
)
changed_job(
    "convnet-fewer-blocks",
    "idx",
    {"model.convnet.blocks": [1, 1]},
    "model.convnet.blocks",
    "as many as widths, 1",
    "found 2 numbers",
)

# ---- The job file itself ----


def text(name, contents, path, expected, found):
    @case(f"file-{name}", path, expected, found, by="reading")
    def build(folder):
        inputs.rows_job(folder)
        return contents


GOOD_TEXT = json.dumps(
    inputs.job({"mlp": inputs.MLP}, {"safetensors": {"path": "rows.safetensors"}}), indent=1
)
text("empty", "", "job.yaml", "allowed: a job", "is empty")
text(
    "no-yaml",
    "name: [a, b\nworld_size: 1\n",
    "job.yaml:2",
    "this is not YAML",
    "end of sequence flow not found",
)
text("binary", "\x7fELF\x02\x01\x01\0\0", "job.yaml:1", "a job file (YAML)", "(ELF)")
text(
    "tabs",
    GOOD_TEXT.replace("{", "\t{").replace('"name"', "\t- name"),
    "job.yaml:2",
    "this is not YAML",
    "illegal block entry",
)
text(
    "two-documents",
    GOOD_TEXT + "\n---\nname: b\n",
    "job.yaml:37",
    "allowed: one document",
    "another document",
)
text(
    "key-twice",
    GOOD_TEXT[:-2] + ',\n "name": "b"}',
    "job.yaml:36: name",
    "first in line 2",
    "given twice",
)
text(
    "unknown-key",
    GOOD_TEXT.replace("world_size", "wrold_size"),
    "wrold_size",
    "did you mean world_size",
    "unknown key",
)
text(
    "anchor-bomb",
    "a: &a [x, x]\n"
    + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in zip("abcdefghij", "bcdefghijk")),
    "job.yaml:1: a",
    "allowed",
    "unknown key",
)


def override(name, setting, path, expected, found):
    @case(f"set-{name}", path, expected, found, by="reading", arguments=["--set", setting])
    def build(folder):
        return inputs.rows_job(folder)


override("unknown-key", "optimizer.sgd.rate=1", "optimizer.sgd.rate", "allowed: lr", "unknown key")
override("unknown-section", "trainer.steps=1", "trainer", "allowed", "unknown key")
override("no-value", "seed", "--set seed", "KEY=VALUE", "is not a setting")
override("no-key", "=3", "--set", "KEY=VALUE", "is not a setting")
override("no-number", "seed=fast", "seed", "whole number", "'fast'")
override("beyond-a-value", "seed.a=1", "seed.a", "a whole number", "nothing below it")
override("index-beyond", "stages[7].fit.steps=1", "stages[7]", "an index up to 1", "1 element")
override(
    "broken-yaml",
    "model.mlp.hidden=[1, 2",
    "model.mlp.hidden",
    "this is not YAML",
    "end of sequence",
)
override("not-allowed", "optimizer.sgd.lr=-1", "optimizer.sgd.lr", "above 0", "found -1")
