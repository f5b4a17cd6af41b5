"""The folders that each folder may use, and the forbidden dependencies."""

# Libraries that all folders with training use.
BELOW_TRAIN = [
    "common",
    "proto",
    "worker/comm",
    "worker/device",
    "worker/layout",
    "worker/memory",
    "worker/models",
    "worker/models/language",
    "worker/data",
    "worker/data/tokens",
    "worker/parallel",
    "worker/optim",
    "worker/checkpoint",
    "worker/trace",
]


def within_train(*folders):
    return [f"worker/train/{folder}" for folder in folders]


# Folder -> the folders it may use. The longest prefix counts. A folder may always use itself, and
# third_party.
ARROWS = {
    "proto": [],
    "common": ["proto"],
    # The header that users build against: it may not depend on other code of the project.
    "plugin": [],
    "examples": ["plugin"],
    # The pages, and what the reference of the job file is made from.
    "docs": ["proto"],
    # Files that an operator gives to Prometheus and Grafana.
    "deploy/monitoring": [],
    # The program, which brings the parts together.
    "coordinator": [
        "common",
        "coordinator/launch",
        "coordinator/service",
        "coordinator/store",
        "coordinator/web",
        "coordinator/webhook",
    ],
    # The rule of a command is an option of its message, which the workers read, too.
    "coordinator/commands": ["common", "proto"],
    "coordinator/membership": [],
    "coordinator/metrics": [],
    "coordinator/limits": [],
    "coordinator/launch": ["common"],
    "coordinator/jobs": ["common", "coordinator/commands", "coordinator/membership"],
    # Messages are stored as they are; the migration reads and writes them.
    "coordinator/store": ["common", "proto", "coordinator/jobs", "coordinator/metrics"],
    "coordinator/webhook": ["common", "coordinator/jobs", "coordinator/store"],
    "coordinator/cluster": [
        "common",
        "coordinator/commands",
        "coordinator/jobs",
        "coordinator/limits",
        "coordinator/membership",
        "coordinator/store",
        "coordinator/webhook",
    ],
    "coordinator/service": [
        "common",
        "proto",
        "coordinator/cluster",
        "coordinator/jobs",
        "coordinator/limits",
        "coordinator/membership",
        "coordinator/store",
        "coordinator/webhook",
    ],
    # Data for programs that watch musterd over HTTP.
    "coordinator/web": [
        "common",
        "proto",
        "coordinator/jobs",
        "coordinator/limits",
        "coordinator/service",
        "coordinator/store",
    ],
    "client/api": ["common", "proto"],
    "client/files": ["common"],
    # The Python package: its modules, what makes its stubs, and the names of operators.
    "client/python": ["common", "proto"],
    "client/checkpoints": ["common"],
    "client/cli": [
        "common",
        "proto",
        "client/api",
        "client/checkpoints",
        "client/cli/data",
        "client/cli/init",
        "client/cli/python",
        "client/cli/terminal",
        "client/files",
    ],
    "client/cli/python": ["common", "client/cli/terminal"],
    "client/cli/init": ["common"],
    "client/cli/data": ["common", "client/cli/terminal", "client/files"],
    "client/cli/terminal": ["common", "proto"],
    "worker/device": [],
    "worker/comm": ["common", "worker/device", "worker/memory", "worker/trace"],
    "worker/layout": ["common"],
    "worker/memory": ["common"],
    "worker/trace": ["common"],
    # Its registry names every kind of model; the kinds use what models are made of.
    "worker/models": [
        "common",
        "proto",
        "worker/device",
        "worker/memory",
        "worker/models/language",
        "worker/models/plugin",
        "worker/models/torchscript",
    ],
    "worker/models/language": [
        "common",
        "proto",
        "worker/device",
        "worker/memory",
        "worker/models",
    ],
    "worker/models/plugin": [
        "common",
        "plugin",
        "proto",
        "worker/device",
        "worker/memory",
        "worker/models",
    ],
    "worker/models/torchscript": ["common", "proto", "worker/device", "worker/models"],
    "worker/data": ["common", "worker/models"],
    # Tokens and documents for language models.
    "worker/data/tokens": ["common", "worker/data", "worker/models"],
    "worker/parallel": [
        "common",
        "worker/comm",
        "worker/device",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    "worker/optim": [
        "common",
        "worker/comm",
        "worker/device",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    "worker/checkpoint": [
        "common",
        "worker/comm",
        "worker/device",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    # The job in the form that a session uses, and the rules that follow from it alone.
    "worker/train/job": BELOW_TRAIN,
    # The agreement of a session's ranks on errors, and on their data.
    "worker/train/ranks": BELOW_TRAIN,
    # The inputs of a session from outside, and its events.
    "worker/train/reports": BELOW_TRAIN + ["worker/train/job"],
    "worker/train/data": BELOW_TRAIN + within_train("job", "ranks", "reports"),
    # One step, and what is trained in it.
    "worker/train/step": BELOW_TRAIN + within_train("data", "job", "ranks"),
    # All steps: strategy, optimizer, averages, and new plans.
    "worker/train/training": BELOW_TRAIN + within_train("job", "ranks", "step"),
    # When commands take effect.
    "worker/train/schedule": ["common", "worker/train/reports"],
    # All files except those of predictions.
    "worker/train/save": BELOW_TRAIN
    + within_train("job", "ranks", "reports", "schedule", "step", "training"),
    "worker/train/rollcall": BELOW_TRAIN
    + within_train("job", "ranks", "reports", "save", "schedule", "step", "training"),
    "worker/train/trainability": BELOW_TRAIN
    + within_train("job", "ranks", "reports", "rollcall", "step", "training"),
    "worker/train/evaluate": BELOW_TRAIN
    + within_train("data", "job", "ranks", "reports", "rollcall", "save", "step", "training"),
    "worker/train/predict": BELOW_TRAIN
    + within_train("data", "evaluate", "job", "ranks", "reports", "rollcall", "save", "step"),
    # The effects of commands.
    "worker/train/commands": BELOW_TRAIN
    + within_train("data", "evaluate", "reports", "rollcall", "save", "schedule", "trainability"),
    # The checks before the first step, and the state that is taken over.
    "worker/train/start": BELOW_TRAIN + within_train("data", "job", "ranks", "reports"),
    "worker/train/session": BELOW_TRAIN
    + within_train(
        "commands",
        "data",
        "evaluate",
        "job",
        "predict",
        "ranks",
        "reports",
        "rollcall",
        "save",
        "schedule",
        "start",
        "step",
        "trainability",
        "training",
    ),
    # The reports of a session, as files.
    "worker/tensorboard": ["common", "proto", "worker/train/reports"],
    "worker/control": [
        "common",
        "proto",
        "worker/train/job",
        "worker/train/ranks",
        "worker/train/reports",
        "worker/train/save",
        "worker/train/session",
        "worker/checkpoint",
        "worker/comm",
        "worker/data",
        "worker/layout",
        "worker/memory",
        "worker/optim",
        "worker/parallel",
        "worker/tensorboard",
        "worker/trace",
    ],
    "worker/agent": ["common", "proto"],
    "worker/launcher": ["common"],
    # The program, which brings the parts together.
    "worker": ["common", "worker/control", "worker/launcher", "worker/memory"],
    # The installed packages, which use everything, and which only tests use.
    "deploy": [
        "client/cli",
        "client/python",
        "common",
        "coordinator",
        "docs",
        "examples",
        "proto",
        "worker",
        "worker/agent",
        "worker/launcher",
        "",
    ],
    # Measurements of parts and of programs.
    "bench": ["common", "plugin", "worker/layout", "worker/train/step"],
    # Who tests a whole program has its file; who tests parts across programs has their targets.
    "tests": [],
    "tests/docs": [
        "client",
        "coordinator",
        "docs",
        "examples",
        "tests/parity",
        "tests/process",
        "worker",
        "",
    ],
    "tests/faults": ["plugin", "tests/process"],
    "tests/fuzz": ["common", "worker"],
    "tests/fuzz_torch": ["common", "worker"],
    "tests/gpu": ["common", "tests/parity", "tests/process", "worker"],
    "tests/layering": ["client", "coordinator", "worker"],
    "tests/package": ["common", "deploy"],
    "tests/parity": [
        "client",
        "common",
        "coordinator",
        "examples",
        "tests/tokenizer",
        "worker",
    ],
    "tests/process": [
        "client",
        "coordinator",
        "deploy/monitoring",
        "docs",
        "examples",
        "plugin",
        "proto",
        "worker",
    ],
    "tests/python": ["client", "proto", "tests/process"],
    "tests/reported": ["client/python", "tests/parity", "tests/process", "tests/python"],
    "tests/simulation": ["common", "coordinator", "proto", "worker"],
    "tests/tokenizer": ["common"],
    # The repository's own folder has only pages.
    "": [],
}
# Folders that tests beside the code may use in addition.
IN_TESTS = {
    "worker/models/plugin": ["examples"],
    "worker/train/session": ["worker/models/plugin"],
    "worker/train/trainability": ["worker/models/plugin"],
    "worker/train/training": ["worker/models/plugin", "worker/train/data"],
}
# Labels on which no target in these folders may depend, directly or indirectly.
GRPC = "//third_party/system:grpc"
SQLITE = "//third_party/system:sqlite3"
TORCH = "@torch//"
NEVER = {
    "bench/layout": [GRPC, TORCH],
    "client": [TORCH],
    "common": [SQLITE, TORCH],
    "coordinator": [TORCH],
    # These reach messages by the rules of commands only (common/commands).
    "coordinator/cluster": [GRPC, SQLITE],
    "coordinator/commands": [GRPC, SQLITE],
    "coordinator/jobs": [GRPC, SQLITE],
    "coordinator/membership": [GRPC, SQLITE, "//proto/"],
    "coordinator/metrics": [GRPC, SQLITE, "//proto/"],
    "coordinator/store": [GRPC],
    "examples": [GRPC, SQLITE, "//proto/"],
    "plugin": [GRPC, SQLITE, "//proto/"],
    "tests/simulation": [GRPC, SQLITE, TORCH],
    "worker": [SQLITE],
    "worker/agent": [TORCH],
    "worker/launcher": [GRPC, TORCH],
    "worker/checkpoint": [GRPC],
    "worker/comm": [GRPC],
    "worker/data": [GRPC],
    "worker/layout": [GRPC, TORCH],
    "worker/models": [GRPC],
    "worker/optim": [GRPC],
    "worker/parallel": [GRPC],
    "worker/tensorboard": [GRPC, TORCH],
    "worker/train": [GRPC],
}
