"""Tests of docs/reference/job-file.md: its reference is made from the schema's comments, and these
are true."""

import copy
import difflib
import importlib.util
import json
import re
import subprocess

import pytest
import yaml

from tests.bazel import runfile

_spec = importlib.util.spec_from_file_location(
    "job_file_reference", runfile("docs/job_file_reference.py")
)
job_file_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(job_file_reference)

SCHEMA = job_file_reference.read_schema(job_file_reference.ROOT)
PLACES = job_file_reference.places(SCHEMA)
STORED = job_file_reference.places(SCHEMA, lambda field: field.stored)

FILE = "file"  # stands for any input file
ROWS = {
    "name": "tiny",
    "world_size": 1,
    "model": {"mlp": {"inputs": 4, "classes": 2}},
    "data": {"train": {"safetensors": {"path": [FILE]}}},
    "optimizer": {"sgd": {"lr": 0.1}},
    "batch": {"per_rank": 1},
    "stages": [{"fit": {"steps": 3}}],
}
TOKENS = {"data": {"train": {"tokens": {"path": [FILE]}}}}
GPT2 = TOKENS | {
    "model": {"gpt2": {"vocab_size": 8, "context": 4, "layers": 1, "heads": 2, "width": 8}}
}
MIXTURE = GPT2 | {"data": {"train": {"tokens": {"mixture": [{"path": [FILE], "weight": 1}]}}}}
DOCUMENTS = GPT2 | {"data": {"train": {"documents": {"path": [FILE]}}}}
SAMPLE = (
    GPT2
    | {"data": {"train": GPT2["data"]["train"], "validate": DOCUMENTS["data"]["train"]}}
    | {"stages": [{"fit": {"steps": 3, "validate_every": 1, "sample": {"document": 0}}}]}
)
LLAMA = TOKENS | {"model": {"llama": GPT2["model"]["gpt2"]}}
CONVNET = {
    "model": {"convnet": {"inputs": [1, 8, 8], "widths": [4], "blocks": [1], "classes": 2}},
    "data": {"train": {"idx": {"images": [FILE], "labels": [FILE]}}},
}
FIT = {
    "data": {"train": ROWS["data"]["train"], "validate": ROWS["data"]["train"]},
    "checkpoint": {"directory": "out"},
}
GENERATE = {
    "stages": [
        {"predict": {"output": "out.json", "generate": {"prompts": [[1, 2]], "max_tokens": 2}}}
    ]
}
# Message -> the change of ROWS to a job that has this message, with only the needed keys.
JOBS = {
    "JobSpec": {},
    "ModelSpec": {},
    "Gpt2Spec": GPT2,
    "LlamaSpec": LLAMA,
    "MlpSpec": {},
    "ConvnetSpec": CONVNET,
    "TorchscriptSpec": {"model": {"torchscript": {"path": FILE, "inputs": [4], "classes": 2}}},
    "PluginSpec": TOKENS | {"model": {"plugin": {"path": FILE, "name": "model"}}},
    "WeightsSpec": {
        "model": {"mlp": {"inputs": 4, "classes": 2}, "weights": {"file": FILE, "take": ["*"]}}
    },
    "DataSpec": {},
    "DataSet": {},
    "TokenData": GPT2,
    "MixturePart": MIXTURE,
    "DocumentData": DOCUMENTS,
    "SafetensorsData": {},
    "IdxData": CONVNET,
    "NpyData": {"data": {"train": {"npy": {"inputs": [FILE], "labels": [FILE]}}}},
    "NpyArray": {
        "model": {"plugin": {"path": FILE, "name": "model"}},
        "data": {"train": {"npy": {"arrays": [{"name": "ids", "path": [FILE]}]}}},
    },
    "LossSpec": {"loss": {"cross_entropy": {}}},
    "CrossEntropySpec": {"loss": {"cross_entropy": {}}},
    "LossScaleSpec": {"precision": "float16", "loss_scale": {}},
    "StrategySpec": {"strategy": {"ddp": {}}},
    "DdpSpec": {"strategy": {"ddp": {}}},
    "ShardedDdpSpec": {"strategy": {"sharded_ddp": {}}},
    "FsdpSpec": {"strategy": {"fsdp": {}}},
    "ActivationCheckpointingSpec": {"activation_checkpointing": {}},
    "TrainableSpec": {"trainable": {}},
    "UnevenInputsSpec": {"uneven_inputs": {"join": {}}},
    "JoinSpec": {"uneven_inputs": {"join": {}}},
    "StopAtFirstSpec": {"uneven_inputs": {"stop_at_first": {}}},
    "TrainableRule": {"trainable": {"rules": [{"freeze": "*"}]}},
    "StartSpec": {"start": {"checkpoint": "job@20"}},
    "ProfileSpec": {"profile": {"directory": "traces", "steps": [1]}},
    "OptimizerSpec": {},
    "AdamwSpec": {"optimizer": {"adamw": {"lr": 0.1}}},
    "AdamSpec": {"optimizer": {"adam": {"lr": 0.1}}},
    "SgdSpec": {},
    "LionSpec": {"optimizer": {"lion": {"lr": 0.1}}},
    "AdadeltaSpec": {"optimizer": {"adadelta": {}}},
    "ParameterGroup": {
        "optimizer": {"sgd": {"lr": 0.1}, "groups": [{"match": "*", "weight_decay": 0.5}]}
    },
    "GroupOptimizer": {
        "optimizer": {
            "sgd": {"lr": 0.1},
            "groups": [{"match": "*", "optimizer": {"adamw": {"lr": 0.1}}}],
        }
    },
    "ScheduleSpec": {"schedule": {"constant": {}}},
    "ConstantSchedule": {"schedule": {"constant": {}}},
    "WarmupCosineSchedule": {"schedule": {"warmup_cosine": {}}},
    "LinearSchedule": {"schedule": {"linear": {}}},
    "StepSchedule": {"schedule": {"step": {"step_size": 1}}},
    "OneCycleSchedule": {"schedule": {"one_cycle": {}}},
    "BatchSpec": {},
    "StageSpec": {},
    "FitStage": {},
    "FitSample": SAMPLE,
    "EarlyStoppingSpec": FIT
    | {"stages": [{"fit": {"steps": 3, "validate_every": 1, "early_stopping": {}}}]},
    "KeepBestSpec": FIT
    | {"stages": [{"fit": {"steps": 3, "validate_every": 1, "keep_best": {}}}]},
    "PredictStage": GPT2 | GENERATE,
    "GenerateSpec": GPT2 | GENERATE,
    "EmaSpec": {"ema": {}},
    "MetricsSpec": {"metrics": {"tensorboard": "logs"}},
    "EvaluationSpec": {"evaluation": {}},
    "CheckpointSpec": {"checkpoint": {"directory": "out"}},
    "ExportSpec": {"export": {"path": "out/model.safetensors"}},
    "RestartSpec": {"restart": {}},
    "WatchdogSpec": {"watchdog": {}},
    "CollectivesSpec": {"collectives": {}},
}


@pytest.fixture
def validate(tmp_path):
    """Runs `muster validate` on a job: (exit code, its resolved spec or None, everything that it
    said)."""
    (tmp_path / FILE).write_bytes(b"contents")
    job_file = tmp_path / "job.yaml"

    def run(job):
        job_file.write_text(job if isinstance(job, str) else yaml.safe_dump(job))
        done = subprocess.run(
            [runfile("client/cli/muster"), "validate", job_file, "-o", "json"],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        resolved = json.loads(done.stdout)["resolved"] if done.returncode == 0 else None
        return done.returncode, resolved, done.stderr

    return run


def job_with(message):
    assert message in JOBS, f"{message} is new: add a job that has it to JOBS"
    return copy.deepcopy(ROWS | JOBS[message])


def steps_to(message, places=PLACES):
    """The keys that lead to the first place of a message: "stages[].fit" -> ["stages", 0,
    "fit"]."""
    steps = []
    for step in filter(None, places[message][0].split(".")):
        steps += [step.removesuffix("[]"), 0] if step.endswith("[]") else [step]
    return steps


def at(value, steps):
    for step in steps:
        value = value.get(step, {}) if isinstance(value, dict) else value[step]
    return value


def path_of(steps):
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps
    ).removeprefix(".")


def as_value(text):
    """A default's text as a value; None where it is said in words."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if isinstance(value, str):
        try:
            return float(value)  # 1e-8: a text in YAML 1.1
        except ValueError:
            return value
    return value


def test_the_reference_is_that_of_the_comments():
    found = runfile(job_file_reference.PAGE).read_text()
    expected = job_file_reference.page()
    if found != expected:
        lines = difflib.unified_diff(
            found.splitlines(), expected.splitlines(), "found", "expected", n=0, lineterm=""
        )
        pytest.fail(
            f"{job_file_reference.PAGE} is not what {job_file_reference.PROTO} says; run:\n"
            f"  {job_file_reference.COMMAND}\n" + "\n".join(list(lines)[:20]),
            pytrace=False,
        )


def test_every_key_is_in_the_reference():
    text = runfile(job_file_reference.PAGE).read_text()
    names = {field.name for message in SCHEMA.values() for field in message.fields}
    values = {
        value
        for message in SCHEMA.values()
        for field in message.fields
        for value, _ in field.values
    }
    assert [name for name in sorted(names | values) if f"`{name}`" not in text] == []


def test_the_example_is_a_good_job(validate, tmp_path):
    page = runfile(job_file_reference.PAGE).read_text()
    examples = re.findall(r"^```yaml\n(name:.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        for name in re.findall(r"[\w.-]+\.(?:bin|safetensors|gz|npy|pt|so)\b", example):
            (tmp_path / name).write_bytes(b"contents")
        code, _, said = validate(example)
        assert code == 0, said


@pytest.mark.parametrize("message", PLACES)
def test_what_is_left_out_has_the_default_that_is_said(message, validate):
    code, resolved, said = validate(job_with(message))
    assert code == 0, said
    found = at(resolved, steps_to(message, STORED))
    for field in SCHEMA[message].fields:
        expected = as_value(field.left_out)
        chosen = field.name in at(job_with(message), steps_to(message))
        if (
            chosen
            or field.message
            or field.alternative
            or expected is None
            or isinstance(expected, str)
            and expected not in dict(field.values)
        ):
            continue
        value = found.get(field.stored)
        if field.values:
            value = value.lower()
        elif value is None or isinstance(value, str):
            value = int(value or 0)  # without presence: 0 is not printed; 64 bits: a text
        assert value == expected, f"{message}.{field.name}"


@pytest.mark.parametrize("message", PLACES)
def test_what_is_needed_is_missed(message, validate):
    steps = steps_to(message)
    for field in SCHEMA[message].fields:
        if field.left_out != "needed":
            continue
        job = job_with(message)
        del at(job, steps)[field.name]
        code, _, said = validate(job)
        path = path_of(steps + [field.name])
        assert code == 2 and f": {path}" in said, f"{path} is not missed:\n{said}"
