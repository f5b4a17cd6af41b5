"""The cost of a command on a job with many commands: time, bytes and rows of the first 100 and of
the last 100.

One client sets a new learning rate, again and again, on one job that waits for slots. Each call is
answered when the command is durable. The page bench/README.md says more. Run as: PYTHONPATH=.
python3 bench/commands/run.py --musterd bazel-bin/coordinator/musterd"""

import argparse
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import grpc
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
EDGE = 100
JOB = """
name: "bench" world_size: 1
model { mlp { inputs: 4 classes: 2 } }
data { train { safetensors { path: "/nowhere.safetensors" } } }
optimizer { sgd { lr: 0.1 } }
batch { per_rank: 1 }
stages { fit { steps: 1000000 } }
"""


def stubs(folder):
    """The services in Python, made of this tree's protos."""
    protos = sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "proto/muster/v1").glob("*.proto")
    )
    known = pathlib.Path(protoc.__file__).parent / "_proto"
    made = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{known}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            *protos,
        ]
    )
    assert made == 0, "protoc refuses the protos"
    sys.path.insert(0, str(folder))


class Musterd:
    def __init__(self, program, folder):
        self._program, self._folder, self._state = program, folder, folder / "state"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        port = self._folder / "port"
        port.unlink(missing_ok=True)
        log = open(self._folder / "musterd.log", "ab")
        command = [
            self._program,
            "--state",
            self._state,
            "--listen",
            "127.0.0.1:0",
            "--insecure",
            "--port-file",
            port,
        ]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while not port.exists():
            assert self._process.poll() is None, (self._folder / "musterd.log").read_text()
            time.sleep(0.01)
        self.address = port.read_text().strip()
        return self

    def stop(self):
        self._process.terminate()
        self._process.wait()

    def bytes_written(self):
        """By write calls, to the database and its log."""
        fields = pathlib.Path(f"/proc/{self._process.pid}/io").read_text()
        return int(fields.split("wchar: ")[1].split()[0])

    def count_rows(self):
        """From now on the database itself counts the rows that statements insert, change and
        delete."""
        self.stop()
        db = sqlite3.connect(self._state / "muster.db")
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        db.execute("CREATE TABLE bench_rows (n INTEGER)")
        db.execute("INSERT INTO bench_rows VALUES (0)")
        for table in tables:
            for what in ("INSERT", "UPDATE", "DELETE"):
                db.execute(
                    f"CREATE TRIGGER bench_{what}_{table} AFTER {what} ON {table}"
                    " BEGIN UPDATE bench_rows SET n = n + 1; END"
                )
        db.commit()
        db.close()
        self.start()

    def rows_written(self):
        with sqlite3.connect(f"file:{self._state / 'muster.db'}?mode=ro", uri=True) as db:
            return db.execute("SELECT n FROM bench_rows").fetchone()[0]


def run(program, count, rows, seconds):
    """(ms of each call, what the counter said before each of the first and last EDGE calls and
    after them)"""
    from google.protobuf import text_format
    from proto.muster.v1 import control_service_pb2, control_service_pb2_grpc
    from proto.muster.v1 import job_service_pb2, job_service_pb2_grpc, job_spec_pb2

    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        with Musterd(program, pathlib.Path(folder)) as musterd:
            if rows:
                musterd.count_rows()
            counter = musterd.rows_written if rows else musterd.bytes_written
            with grpc.insecure_channel(
                musterd.address, options=[("grpc.enable_http_proxy", 0)]
            ) as channel:
                submission = job_service_pb2.SubmitJobRequest(
                    job_id="job", request_id=str(uuid.uuid4())
                )
                submission.spec.CopyFrom(text_format.Parse(JOB, job_spec_pb2.JobSpec()))
                job_service_pb2_grpc.JobServiceStub(channel).SubmitJob(submission)
                stub = control_service_pb2_grpc.ControlServiceStub(channel)
                times, marks = [], [counter()]
                end = time.monotonic() + seconds
                while len(times) < count and time.monotonic() < end:
                    request = control_service_pb2.SetLearningRateRequest(
                        job_id="job",
                        learning_rate=0.1,
                        request_id=str(uuid.uuid4()),
                        requested_by="bench",
                    )
                    began = time.perf_counter()
                    stub.SetLearningRate(request)
                    times.append(1000 * (time.perf_counter() - began))
                    if len(times) <= EDGE or len(times) % EDGE == 0:
                        marks.append(counter())
    return times, (marks[EDGE] - marks[0], marks[-1] - marks[-2])


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--musterd", required=True, help="the program")
    arguments.add_argument("--count", type=int, default=10000, help="commands; a multiple of 100")
    arguments.add_argument(
        "--seconds", type=float, default=600, help="no more commands after so long"
    )
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-protos-") as folder:
        stubs(folder)
        times, written = run(options.musterd, options.count, False, options.seconds)
        # The counting costs time, so it has a run of its own.
        _, rows = run(
            options.musterd, min(options.count, len(times) // EDGE * EDGE), True, options.seconds
        )
    first, last = statistics.median(times[:EDGE]), statistics.median(times[-EDGE:])
    print(f"{len(times)} commands in {sum(times) / 1000:.1f} s")
    print(f"{'':22}{'first 100':>12}{'last 100':>12}{'ratio':>8}")
    for name, one, other in (
        ("ms, median of a call", first, last),
        ("KB written a command", written[0] / EDGE / 1000, written[1] / EDGE / 1000),
        ("rows a command", rows[0] / EDGE, rows[1] / EDGE),
    ):
        print(f"{name:22}{one:12.2f}{other:12.2f}{other / one:8.2f}")


if __name__ == "__main__":
    main()
