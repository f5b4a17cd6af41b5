"""A job of some seconds, and what the command line says of it and of its nodes."""

from tests.process import harness, paced_job

STEPS = 300
# A step waits most of this time and leaves the machine to the other tests.
PACE_MS = 10


def submit(muster, job_id, **changes):
    changes = {
        "stages": [{"fit": {"steps": STEPS}}],
        # Only what is asked for is written, and the last one.
        "checkpoint": {"directory": "checkpoints", "every_steps": 100000},
        "export": {"path": f"{job_id}.safetensors"},
        "restart": {"max_restarts": 0},
    } | changes
    job_file = paced_job.write_job(muster.folder, PACE_MS, name=f"{job_id}.yaml", **changes)
    muster.cli("submit", job_file, "--id", job_id)


def get(muster, job_id):
    return muster.cli("get", job_id, "-o", "json").json()


def await_step(muster, job_id, step):
    harness.eventually(
        lambda: int(get(muster, job_id).get("step", 0)) >= step, f"{job_id} reaches step {step}"
    )


def await_node(muster, name, state="ATTACHED"):
    def there():
        nodes = muster.cli("nodes", "-o", "json").json().get("nodes", [])
        return any(node["name"] == name and node["state"] == state for node in nodes)

    harness.eventually(there, f"node {name} is {state}")
