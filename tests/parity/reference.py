"""Training in plain PyTorch, one process, from a job file: what Muster's numbers are compared with.

The process takes the micro-batches of all ranks one after the other, adds up their gradients in
place, divides once by their number and steps torch.optim. Nothing here comes from Muster but the
formats."""

import copy
import dataclasses
import fnmatch
import itertools
import json
import math
import pathlib

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.parity import sampler

torch.set_num_threads(1)


class Mlp(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, rows):
        x = rows.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


def gpt2_config(options):
    """The transformers configuration of a job file's `gpt2`."""
    dropout = options.get("dropout", 0.0)
    return GPT2Config(
        vocab_size=options["vocab_size"],
        n_positions=options["context"],
        n_embd=options["width"],
        n_layer=options["layers"],
        n_head=options["heads"],
        n_inner=options.get("inner"),
        tie_word_embeddings=options.get("tied", True),
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=None,
        eos_token_id=None,
    )


def llama_config(options):
    """The transformers configuration of a job file's `llama`."""
    return LlamaConfig(
        vocab_size=options["vocab_size"],
        max_position_embeddings=options["context"],
        hidden_size=options["width"],
        intermediate_size=options["inner"],
        num_hidden_layers=options["layers"],
        num_attention_heads=options["heads"],
        num_key_value_heads=options.get("kv_heads"),
        rope_parameters={"rope_type": "default", "rope_theta": options.get("rope_theta", 10000.0)},
        rms_norm_eps=options.get("norm_eps", 1e-5),
        tie_word_embeddings=options.get("tied", False),
        bos_token_id=None,
        eos_token_id=None,
        # Written out, where Muster takes a fused kernel.
        attn_implementation="eager",
    )


def load_weights(path):
    """The tensors of a safetensors file, or of the files that an index names."""
    if not str(path).endswith(".json"):
        return load_file(path)
    tensors = {}
    for name in sorted(set(json.loads(pathlib.Path(path).read_text())["weight_map"].values())):
        tensors |= load_file(pathlib.Path(path).parent / name)
    return tensors


def build(spec):
    """The job's model with the values of its weights file."""
    options = spec["model"]
    tied = False
    if "gpt2" in options:
        model = GPT2LMHeadModel(gpt2_config(options["gpt2"]))
        tied = options["gpt2"].get("tied", True)
    elif "llama" in options:
        model = LlamaForCausalLM(llama_config(options["llama"]))
        tied = options["llama"].get("tied", False)
    else:
        model = Mlp(**options["mlp"])
    if "weights" in options:
        missing, unexpected = model.load_state_dict(load_weights(options["weights"]), strict=False)
        assert not unexpected and missing == (["lm_head.weight"] if tied else [])
    return model


class Tokens:
    def __init__(self, path, context):
        self.tokens = torch.from_numpy(numpy.fromfile(path, dtype="<u2").astype("int64"))
        self.context = context

    def __len__(self):
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, samples):
        rows = torch.stack([self.tokens[i * self.context :][: self.context + 1] for i in samples])
        return rows[:, :-1], rows[:, 1:]


class Rows:
    def __init__(self, path):
        tensors = load_file(path)
        self.inputs, self.labels = tensors["inputs"], tensors["labels"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, samples):
        return self.inputs[samples], self.labels[samples]


def open_data(spec, which):
    source = spec["data"][which]
    if "tokens" in source:
        model = spec["model"].get("gpt2") or spec["model"]["llama"]
        return Tokens(source["tokens"]["path"], model["context"])
    return Rows(source["safetensors"]["path"])


def logits_of(model, inputs):
    logits = model(inputs)
    return getattr(logits, "logits", logits)


def mean_loss(model, inputs, targets, loss=None):
    """`loss`: the job file's; cross entropy without."""
    logits = logits_of(model, inputs)
    if loss and "mse" in loss:
        return F.mse_loss(logits, targets)
    options = loss["cross_entropy"] if loss else {}
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **options)


def loss_terms(targets, loss=None):
    """Returns the number of terms of the mean."""
    if loss and "mse" in loss:
        return targets.numel()
    ignored = loss["cross_entropy"].get("ignore_index") if loss else None
    return targets.numel() if ignored is None else int((targets != ignored).sum())


def rate_factor(schedule, total_steps):
    """Returns JobSpec's warmup_cosine as a function for LambdaLR."""
    if "warmup_cosine" not in schedule:
        return lambda step: 1.0
    cosine = schedule["warmup_cosine"]
    warmup, least = cosine["warmup_steps"], cosine.get("min_ratio", 0.0)
    total = cosine.get("total_steps", total_steps)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        if step >= total:
            return least
        return least + (1 - least) * 0.5 * (
            1 + math.cos(math.pi * (step - warmup) / (total - warmup))
        )

    return factor


class Lion(torch.optim.Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), algorithm 2, which
    torch.optim does not have."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, gradient = self.state[parameter], parameter.grad
                if "exp_avg" not in state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                mean = state["exp_avg"]
                direction = torch.sign(beta1 * mean + (1 - beta1) * gradient)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(group["lr"] * direction)
                state["exp_avg"] = beta2 * mean + (1 - beta2) * gradient


OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "lion": Lion,
    "adadelta": torch.optim.Adadelta,
}


class Several(torch.optim.Optimizer):
    """Optimizers of several kinds as one. Each of its param_groups has its kind as "optimizer"."""

    def __init__(self, param_groups):
        super().__init__(param_groups, {})
        # Each fills in its own defaults.
        self.parts = {
            kind: OPTIMIZERS[kind](self.of_kind(kind), lr=1.0)
            for kind in {group["optimizer"] for group in self.param_groups}
        }
        self.share()

    def of_kind(self, kind):
        return [group for group in self.param_groups if group["optimizer"] == kind]

    def share(self):
        for kind, part in self.parts.items():
            part.param_groups = self.of_kind(kind)
            part.state = self.state

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.share()

    def step(self, closure=None):
        for part in self.parts.values():
            part.step()


def settings_of(options, name):
    """Returns the settings of a parameter by the job's optimizer and groups, as a param_group of
    torch.optim with its kind as "optimizer"."""

    def chosen(options):
        return next({"optimizer": kind} | options[kind] for kind in OPTIMIZERS if kind in options)

    settings, scale = chosen(options), 1.0
    for group in options.get("groups", []):
        if not fnmatch.fnmatchcase(name, group["match"]):
            continue
        if "optimizer" in group:
            settings = chosen(group["optimizer"])
        own = ("weight_decay", "lr", "betas", "eps", "momentum")
        settings |= {key: group[key] for key in own if key in group}
        scale = group.get("lr_scale", scale)
    return settings | {"lr": settings["lr"] * scale}


def of_groups(param_groups):
    kinds = {group["optimizer"] for group in param_groups}
    if len(kinds) > 1:
        return Several(param_groups)
    (kind,) = kinds
    plain = [
        {key: value for key, value in group.items() if key != "optimizer"} for group in param_groups
    ]
    return OPTIMIZERS[kind](plain, lr=1.0)


def build_optimizer(options, model):
    """torch.optim with one param_group for each parameter, which has what the job's groups set for
    it."""
    return of_groups(
        [
            settings_of(options, name) | {"params": [parameter]}
            for name, parameter in model.named_parameters()
        ]
    )


def grouped_optimizer(options, model):
    """Returns a torch.optim with one param_group for all parameters that have the same settings, as
    people write it. Parameters have the order of the model, and groups the order of their first
    parameters."""
    groups = {}
    for name, parameter in model.named_parameters():
        settings = settings_of(options, name)
        groups.setdefault(repr(settings), settings | {"params": []})["params"].append(parameter)
    return of_groups(list(groups.values()))


def autocast(spec):
    """Returns the scope in which the job's forwards run."""
    types = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    precision = spec.get("precision", "float32")
    enabled = precision in types and spec.get("autocast", True)  # no setting of a job
    return torch.autocast("cpu", types.get(precision, torch.bfloat16), enabled=enabled)


def grad_scaler(spec):
    """For float32 and bfloat16 one that does nothing."""
    options = spec.get("loss_scale", {})
    return torch.amp.GradScaler(
        "cpu",
        init_scale=options.get("initial", 65536.0),
        growth_factor=options.get("growth_factor", 2.0),
        backoff_factor=options.get("backoff_factor", 0.5),
        growth_interval=options.get("growth_interval", 2000),
        enabled=spec.get("precision") == "float16",
    )


@dataclasses.dataclass
class Result:
    losses: list  # mean over all micro-batches, one for each step
    norms: list  # of the gradient, before clipping
    parameters: dict  # step -> {name: tensor}
    scales: list = dataclasses.field(
        default_factory=list
    )  # that each step's loss was multiplied by
    steps: dict = dataclasses.field(default_factory=dict)  # step -> AdamW's own count of its steps
    moments: dict = dataclasses.field(default_factory=dict)  # step -> {slot/name: tensor}
    optimizer: dict = None  # its state_dict() at the end


@dataclasses.dataclass
class Start:
    """The state from which a run continues."""

    step: int  # steps done
    parameters: dict  # {name: tensor}
    optimizer: dict  # for load_state_dict of grouped_optimizer; None: it begins anew


def train(spec, seed_of_sampler=None, before_step=None, start=None):
    """Runs the job's one fit stage. `seed_of_sampler` is for tests of the tests. `before_step(step,
    model)` may freeze and unfreeze parameters."""
    model = build(spec).train()
    if start is not None and start.parameters:
        missing, unexpected = model.load_state_dict(start.parameters, strict=False)
        assert not unexpected and missing in ([], ["lm_head.weight"])
    data = open_data(spec, "train")
    batch = spec["batch"]
    plan = sampler.steps(
        len(data),
        spec.get("seed", 0) if seed_of_sampler is None else seed_of_sampler,
        spec["world_size"],
        batch["per_rank"],
        batch.get("accumulate", 1),
        batch.get("order", "shuffled"),
        batch.get("last", "drop"),
    )
    (stage,) = spec["stages"]
    total_steps = stage["fit"]["steps"]
    if start is None:
        optimizer = build_optimizer(spec["optimizer"], model)
    else:
        optimizer = grouped_optimizer(spec["optimizer"], model)
        if start.optimizer is not None:
            optimizer.load_state_dict(copy.deepcopy(start.optimizer))
    scaler = grad_scaler(spec)
    done = start.step if start is not None else 0
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, rate_factor(spec.get("schedule", {}), total_steps), last_epoch=done - 1
    )
    result = Result([], [], {})
    for step, ranks in itertools.islice(zip(range(1, total_steps + 1), plan), done, None):
        if before_step is not None:
            before_step(step, model)
        optimizer.zero_grad()
        micro_batches = [samples for rank in ranks for samples in rank]
        losses = []
        for samples in micro_batches:
            with autocast(spec):
                loss = mean_loss(model, *data[samples], spec.get("loss"))
            if loss.requires_grad:
                scaler.scale(loss).backward()
            losses.append(loss.item())
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad /= len(micro_batches)
        scaler.unscale_(optimizer)
        if "clip_grad_norm" in spec:
            norm = torch.nn.utils.clip_grad_norm_(trained, spec["clip_grad_norm"])
            result.norms.append(norm.item())
        result.scales.append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        states = list(optimizer.state.values())
        result.steps[step] = float(states[0].get("step", 0)) if states else 0.0
        result.moments[step] = {
            f"{slot}/{name}": value.detach().clone()
            for name, parameter in model.named_parameters()
            for slot, value in optimizer.state.get(parameter, {}).items()
            if value is not None
        }
        result.losses.append(sum(losses) / len(losses))
        result.parameters[step] = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }
    result.optimizer = optimizer.state_dict()
    return result


def validation_loss(spec):
    """The mean over all loss terms of the validation data, each sample once."""
    model = build(spec).eval()
    data = open_data(spec, "validate")
    total, terms = 0.0, 0
    with torch.no_grad():
        for sample in range(len(data)):
            inputs, targets = data[[sample]]
            count = loss_terms(targets, spec.get("loss"))
            if count == 0:
                continue  # torch's mean over nothing is NaN
            with autocast(spec):
                loss = mean_loss(model, inputs, targets, spec.get("loss"))
            total += loss.item() * count
            terms += count
    return total / terms


def validation_accuracy(spec):
    """The part of the targets that count whose logit is the largest one."""
    model = build(spec).eval()
    data = open_data(spec, "validate")
    ignored = spec.get("loss", {}).get("cross_entropy", {}).get("ignore_index")
    correct, terms = 0, 0
    with torch.no_grad():
        for sample in range(len(data)):
            inputs, targets = data[[sample]]
            hits = logits_of(model, inputs).argmax(-1) == targets
            if ignored is not None:
                hits &= targets != ignored
            correct += int(hits.sum())
            terms += loss_terms(targets, spec.get("loss"))
    return correct / terms
