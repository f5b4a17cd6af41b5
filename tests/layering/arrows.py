"""Which folder may use which, and which dependencies are forbidden."""

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
    # The program, which brings the parts together.
    "coordinator": ["common", "coordinator/launch", "coordinator/service", "coordinator/store"],
    "coordinator/commands": [],
    "coordinator/membership": [],
    "coordinator/metrics": [],
    "coordinator/limits": [],
    "coordinator/launch": ["common"],
    "coordinator/jobs": ["common", "coordinator/commands", "coordinator/membership"],
    # Messages are stored as they are; the migration reads and writes them.
    "coordinator/store": ["common", "proto", "coordinator/jobs", "coordinator/metrics"],
    "coordinator/cluster": [
        "common",
        "coordinator/commands",
        "coordinator/jobs",
        "coordinator/limits",
        "coordinator/membership",
        "coordinator/store",
    ],
    "coordinator/service": [
        "common",
        "proto",
        "coordinator/cluster",
        "coordinator/jobs",
        "coordinator/limits",
        "coordinator/membership",
        "coordinator/store",
    ],
    "client/api": ["common", "proto"],
    "client/cli": ["common", "proto", "client/api", "client/cli/terminal"],
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
        "worker/models/plugin",
        "worker/models/torchscript",
    ],
    "worker/models/plugin": ["common", "plugin", "proto", "worker/models"],
    "worker/models/torchscript": ["common", "proto", "worker/models"],
    "worker/data": ["common", "worker/models"],
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
    "worker/train": [
        "common",
        "proto",
        "worker/comm",
        "worker/device",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
        "worker/parallel",
        "worker/optim",
        "worker/checkpoint",
        "worker/trace",
    ],
    "worker/control": [
        "common",
        "proto",
        "worker/train",
        "worker/checkpoint",
        "worker/comm",
        "worker/data",
        "worker/layout",
        "worker/memory",
        "worker/optim",
        "worker/parallel",
        "worker/trace",
    ],
    "worker/agent": ["common", "proto"],
    # The program, which brings the parts together.
    "worker": ["common", "worker/control", "worker/memory"],
    # Measurements of parts and of programs.
    "bench": ["common", "plugin", "worker/layout", "worker/train"],
    # Who tests a whole program has its file; who tests parts across programs has their targets.
    "tests": [],
    "tests/docs": ["client", "coordinator", "docs", "examples", "tests/process", "worker", ""],
    "tests/faults": ["plugin", "tests/process"],
    "tests/fuzz": ["common", "worker"],
    "tests/gpu": ["common", "tests/parity", "worker"],
    "tests/layering": ["client", "coordinator", "worker"],
    "tests/parity": ["client", "common", "coordinator", "examples", "worker"],
    "tests/process": ["client", "coordinator", "examples", "plugin", "proto", "worker"],
    "tests/simulation": ["common", "coordinator", "worker"],
    # The repository's own folder has only pages.
    "": [],
}
# What tests beside the code may use besides.
IN_TESTS = {
    "worker/models/plugin": ["examples"],
    "worker/train": ["worker/models/plugin"],
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
    "coordinator/cluster": [GRPC, SQLITE, "//proto/"],
    "coordinator/commands": [GRPC, SQLITE, "//proto/"],
    "coordinator/jobs": [GRPC, SQLITE, "//proto/"],
    "coordinator/membership": [GRPC, SQLITE, "//proto/"],
    "coordinator/metrics": [GRPC, SQLITE, "//proto/"],
    "coordinator/store": [GRPC],
    "examples": [GRPC, SQLITE, "//proto/"],
    "plugin": [GRPC, SQLITE, "//proto/"],
    "tests/simulation": [GRPC, SQLITE, TORCH],
    "worker": [SQLITE],
    "worker/agent": [TORCH],
    "worker/checkpoint": [GRPC],
    "worker/comm": [GRPC],
    "worker/data": [GRPC],
    "worker/layout": [GRPC, TORCH],
    "worker/models": [GRPC],
    "worker/optim": [GRPC],
    "worker/parallel": [GRPC],
    "worker/train": [GRPC],
}
