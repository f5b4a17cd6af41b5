"""One job of a coordinator."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster import _metrics, errors
from muster._connection import Connection, within
from muster._proto.proto.muster.v1 import (
    control_service_pb2,
    job_pb2,
    job_service_pb2,
    job_spec_pb2,
    metrics_pb2,
    operation_pb2,
    operation_service_pb2,
)
from muster._settings import Settings, settings_of
from muster.operation import Operation, name_of

if TYPE_CHECKING:
    import pandas

_ENDED = (job_pb2.Job.SUCCEEDED, job_pb2.Job.FAILED, job_pb2.Job.CANCELLED)


def _one_of(what: str, value: str, enum: Any) -> Any:
    """Returns the value of an enum of the protos, by its name in lower case."""
    allowed = {name.lower(): number for name, number in enum.items() if number}
    if value not in allowed:
        raise ValueError(f"{what}: found {value!r}; expected one of {', '.join(allowed)}")
    return allowed[value]


class Job:
    """One job, made by Client.submit or Client.job. A Job holds only the id, and asks the
    coordinator for everything else.

    The calls that steer a job return an Operation at once, when the coordinator has stored it.
    `at_step` delays the change until this many optimizer steps are done. `requested_by` is a label
    for the job's history.
    """

    def __init__(self, connection: Connection, job_id: str):
        self._connection = connection
        self.id = job_id

    def __repr__(self) -> str:
        return f"<muster.Job {self.id}>"

    # ---- Looking ----

    def get(self) -> job_pb2.Job:
        """Returns the job as it is now: the message muster.v1.Job (proto/muster/v1/job.proto)."""
        request = job_service_pb2.GetJobRequest(job_id=self.id)
        return self._connection.read(self._connection.jobs.GetJob, request)

    @property
    def state(self) -> str:
        """Returns the state as it is now: "RUNNING"."""
        return name_of(job_pb2.Job.State, self.get().state)

    def watch(self, timeout: float | None = None) -> Iterator[job_pb2.Job]:
        """Yields the job as it is now, and again after each change, until the job has ended.
        Changes in quick succession may be merged. The iteration continues after a broken
        connection. DeadlineExceeded: the job has not ended after `timeout` seconds."""
        request = job_service_pb2.WatchJobRequest(job_id=self.id)
        ended = False
        states = self._connection.stream(
            lambda left: self._connection.jobs.WatchJob(request, timeout=left),
            lambda: ended,
            timeout,
        )
        with within(timeout, f"job '{self.id}' has not ended"):
            for state in states:
                request.after_version = state.version
                if not request.attempt:
                    request.attempt = state.attempt
                ended = state.state in _ENDED
                yield state
                if ended:
                    return

    def wait(self, timeout: float | None = None, check: bool = False) -> job_pb2.Job:
        """Waits until the job has ended, and returns its last state. DeadlineExceeded: the job has
        not ended after `timeout` seconds. JobFailed: the job did not SUCCEED; only with `check`."""
        last = collections.deque(self.watch(timeout), maxlen=1).pop()
        if check and last.state != job_pb2.Job.SUCCEEDED:
            name = name_of(job_pb2.Job.State, last.state)
            raise errors.JobFailed(
                f"job '{self.id}' is {name}: {last.state_reason}",
                code="ABORTED",
                reason=last.reason,
                metadata={"job": self.id},
            )
        return last

    def logs(
        self, rank: int | None = None, follow: bool = False, timeout: float | None = None
    ) -> Iterator[job_service_pb2.LogLine]:
        """Yields the stored log lines; with `follow` also later lines, until the job has ended."""
        request = job_service_pb2.StreamLogsRequest(job_id=self.id, rank=rank, follow=follow)
        lines = self._connection.stream(
            lambda left: self._connection.jobs.StreamLogs(request, timeout=left),
            lambda: True,
            timeout,
        )
        with within(timeout, f"the log of job '{self.id}' has not ended"):
            for line in lines:
                request.after_sequence = line.sequence
                yield line

    def metrics_entries(
        self, follow: bool = False, timeout: float | None = None
    ) -> Iterator[metrics_pb2.StepMetrics]:
        """Yields the stored measurements, in the order of steps, each once; with `follow` also
        later measurements, until the job has ended."""
        request = job_service_pb2.StreamMetricsRequest(
            job_id=self.id, follow=follow, from_step=1, from_validation=0, from_test=0
        )
        entries = self._connection.stream(
            lambda left: self._connection.jobs.StreamMetrics(request, timeout=left),
            lambda: True,
            timeout,
        )
        with within(timeout, f"the measurements of job '{self.id}' have not ended"):
            for entry in entries:
                request.from_step = entry.step + 1
                # Passes after this step that have not been received may still come.
                for stage in ("validation", "test"):
                    name = f"from_{stage}"
                    received = entry.HasField(stage)
                    setattr(
                        request,
                        name,
                        entry.step + 1 if received else max(getattr(request, name), entry.step),
                    )
                yield entry

    def metrics(self) -> pandas.DataFrame:
        """Returns the stored measurements as a table: one row for each step, with the columns of
        muster.v1.StepMetrics (proto/muster/v1/metrics.proto), `seconds` for its duration, and
        `validation_loss`, `test_accuracy` and so on. Needs pandas."""
        return _metrics.table(self.metrics_entries())

    def trainability(self) -> control_service_pb2.GetTrainabilityResponse:
        """Returns the parameters with their state (trained or frozen), and the rules."""
        request = control_service_pb2.GetTrainabilityRequest(job_id=self.id)
        return self._connection.read(self._connection.control.GetTrainability, request)

    def operations(self) -> list[Operation]:
        """Returns all operations of the job, oldest first."""
        found: list[Operation] = []
        request = operation_service_pb2.ListOperationsRequest(job_id=self.id)
        while True:
            page = self._connection.read(self._connection.operations.List, request)
            found += [Operation(self._connection, state) for state in page.operations]
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    # ---- Steering ----

    def freeze(
        self,
        *patterns: str,
        dry_run: bool = False,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Stops training the parameters whose names match a pattern ("*" any text, "?" any
        character). `dry_run`: only reports what would change."""
        return self._set_trainability("freeze", patterns, dry_run, at_step, requested_by)

    def unfreeze(
        self,
        *patterns: str,
        dry_run: bool = False,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Trains the parameters whose names match a pattern again: the reverse of freeze."""
        return self._set_trainability("unfreeze", patterns, dry_run, at_step, requested_by)

    def refresh(self, requested_by: str = "") -> Operation:
        """Makes effective that the model's own code has frozen or unfrozen parameters."""
        request = control_service_pb2.RefreshRequest(job_id=self.id, requested_by=requested_by)
        return self._steer(self._connection.control.Refresh, request)

    def set_lr(
        self, learning_rate: float, at_step: int | None = None, requested_by: str = ""
    ) -> Operation:
        """Scales the schedule so that the next step uses this learning rate."""
        request = control_service_pb2.SetLearningRateRequest(
            job_id=self.id, learning_rate=learning_rate, at_step=at_step, requested_by=requested_by
        )
        return self._steer(self._connection.control.SetLearningRate, request)

    def skip_data(
        self,
        samples: int,
        dry_run: bool = False,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Leaves out the samples that training would take next. These samples count as consumed in
        the epoch. With `dry_run` the operation only reports the samples: the message
        muster.v1.SkippedData."""
        request = control_service_pb2.SkipDataRequest(
            job_id=self.id,
            samples=samples,
            dry_run=dry_run,
            at_step=at_step,
            requested_by=requested_by,
        )
        return self._steer(self._connection.control.SkipData, request)

    def checkpoint(self, at_step: int | None = None, requested_by: str = "") -> Operation:
        """Writes a checkpoint. The result is the message muster.v1.Checkpoint."""
        request = control_service_pb2.SaveCheckpointRequest(
            job_id=self.id, at_step=at_step, requested_by=requested_by
        )
        return self._steer(self._connection.control.SaveCheckpoint, request)

    def gather_optimizer_state(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "torch",
        key: str = "index",
        overwrite: bool = False,
        hold: bool = False,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Writes the optimizer's state of all ranks to one file, on the node of rank 0.

        format: "torch" (torch.load reads it as the state_dict of an optimizer) or "safetensors".
        key: with "torch", parameters are numbers ("index") or names ("name").
        hold: training waits until the file is written, and no copy of the state is needed."""
        request = control_service_pb2.GatherOptimizerStateRequest(
            job_id=self.id, at_step=at_step, requested_by=requested_by
        )
        file = request.file
        file.path = os.path.abspath(path)
        file.format = _one_of("format", format, operation_pb2.OptimizerStateFile.Format)
        file.key = _one_of("key", key, operation_pb2.OptimizerStateFile.Key)
        file.overwrite, file.hold = overwrite, hold
        return self._steer(self._connection.control.GatherOptimizerState, request)

    def consolidate(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: str = "float32",
        max_shard_bytes: int = 0,
        overwrite: bool = False,
        hold: bool = False,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Writes the weights of all ranks to a folder that Hugging Face's from_pretrained reads, on
        the node of rank 0. dtype: "float32", "bfloat16" or "float16"."""
        request = control_service_pb2.ConsolidateRequest(
            job_id=self.id, at_step=at_step, requested_by=requested_by
        )
        folder = request.folder
        folder.path = os.path.abspath(path)
        folder.dtype = _one_of("dtype", dtype, operation_pb2.ModelFolder.Dtype)
        folder.max_shard_bytes = max_shard_bytes
        folder.overwrite, folder.hold = overwrite, hold
        return self._steer(self._connection.control.Consolidate, request)

    def run_stage(
        self, stage: str, at_step: int | None = None, requested_by: str = ""
    ) -> Operation:
        """Runs a pass of "validate" or "test" now. The pass does not change the results of
        training."""
        request = control_service_pb2.RunStageRequest(
            job_id=self.id, stage=stage, at_step=at_step, requested_by=requested_by
        )
        return self._steer(self._connection.control.RunStage, request)

    def sample(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int,
        temperature: float | None = None,
        top_k: int | None = None,
        seed: int = 0,
        at_step: int | None = None,
        requested_by: str = "",
    ) -> Operation:
        """Continues a prompt (text, or tokens) with the current model."""
        request = control_service_pb2.SampleRequest(
            job_id=self.id,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            at_step=at_step,
            requested_by=requested_by,
        )
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.tokens.extend(prompt)
        return self._steer(self._connection.control.Sample, request)

    def pause(self, at_step: int | None = None, requested_by: str = "") -> Operation:
        """Halts the job at the next step boundary; everything stays in memory."""
        request = job_service_pb2.PauseJobRequest(
            job_id=self.id, at_step=at_step, requested_by=requested_by
        )
        return self._steer(self._connection.jobs.PauseJob, request)

    def resume(
        self,
        start: str | os.PathLike[str] | None = None,
        from_scratch: bool = False,
        requested_by: str = "",
    ) -> Operation:
        """Continues a halted job, or one that ended CANCELLED or FAILED: from its newest
        checkpoint, from the checkpoint directory `start`, or from step 0 (`from_scratch`)."""
        request = job_service_pb2.ResumeJobRequest(
            job_id=self.id, from_scratch=from_scratch, requested_by=requested_by
        )
        if start is not None:
            setattr(request, "from", os.path.abspath(start))
        return self._steer(self._connection.jobs.ResumeJob, request)

    def stop(self, at_step: int | None = None, requested_by: str = "") -> job_pb2.Job:
        """Ends the job at a step boundary, as CANCELLED, with a checkpoint if the job writes
        checkpoints."""
        request = job_service_pb2.StopJobRequest(
            job_id=self.id, at_step=at_step, requested_by=requested_by
        )
        return self._connection.change(self._connection.jobs.StopJob, request)

    def retry(
        self,
        requested_by: str = "",
        *,
        set: Settings | None = None,
        from_step: int | None = None,
    ) -> job_pb2.Job:
        """Begins the next attempt of a job that FAILED or was CANCELLED.

        set: other values for settings of the job, {"optimizer.adamw.lr": 1e-4}. Relative paths are
            relative to the current folder. Settings that cannot change after the job has run are
            refused.
        from_step: begin with the checkpoint of this step (0: from the beginning) in place of the
            newest one."""
        settings = settings_of(set)
        request = job_service_pb2.RetryJobRequest(
            job_id=self.id,
            requested_by=requested_by,
            settings=settings,
            settings_folder=os.getcwd() if settings else "",
            from_step=from_step,
        )
        return self._connection.change(self._connection.jobs.RetryJob, request)

    def delete(self) -> job_service_pb2.DeleteJobResponse:
        """Removes a job that has ended from the coordinator. Its files stay; the answer names
        them."""
        request = job_service_pb2.DeleteJobRequest(job_id=self.id)
        return self._connection.change(self._connection.jobs.DeleteJob, request)

    def _set_trainability(
        self,
        what: str,
        patterns: Sequence[str],
        dry_run: bool,
        at_step: int | None,
        requested_by: str,
    ) -> Operation:
        if not patterns:
            raise ValueError(f"{what} needs a pattern of parameters' names, such as '*.bias'")
        request = control_service_pb2.SetTrainabilityRequest(
            job_id=self.id, dry_run=dry_run, at_step=at_step, requested_by=requested_by
        )
        for pattern in patterns:
            request.rules.append(job_spec_pb2.TrainableRule(**{what: pattern}))
        return self._steer(self._connection.control.SetTrainability, request)

    def _steer(self, method: Any, request: Any) -> Operation:
        return Operation(self._connection, self._connection.change(method, request))
