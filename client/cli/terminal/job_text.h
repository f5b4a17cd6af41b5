// Jobs as text for people.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_JOB_TEXT_H_
#define MUSTER_CLIENT_CLI_TERMINAL_JOB_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// "RUNNING"
std::string StateName(v1::Job::State state);
// "120/1000"
std::string Steps(const v1::Job& job);
// "2.3456"; "-" if there is none.
std::string Loss(bool has, double loss);
// "1h02m", "2m03s", "4.5s".
std::string HumanDuration(absl::Duration duration);
// "12.3 MiB"
std::string HumanBytes(uint64_t bytes);
// "3m10s ago"; "-" for a time that is not set.
std::string Ago(const google::protobuf::Timestamp& time, absl::Time now);

// One line per job, with a header. NOTE has the reason of the job's state (for programs) and the
// warnings.
std::string JobTable(const std::vector<v1::Job>& jobs, absl::Time now);
// One line per rank of the newest generation, with a header.
std::string RankTable(const v1::Job& job, absl::Time now);
// One line per rank that has reported its collectives: how many have begun and ended, and the
// newest. With a header; empty if there is no such rank.
std::string CollectivesTable(const v1::Job& job);
// One line per rank that has reported its memory, with a header; empty if there is no such rank.
std::string MemoryTable(const v1::Job& job);
// "step 40: SAVE_FAILED: No space left on device": one line, without its end.
std::string EventLine(const v1::JobEvent& event);
// The events of `job` that the earlier snapshot `before` does not have, oldest first.
std::vector<v1::JobEvent> NewEvents(const v1::Job& before, const v1::Job& job);
// One line per event with a header, for the newest 5; empty without events.
std::string EventTable(const v1::Job& job, absl::Time now);
// The path of the best of the checkpoints that count (keep_best). Empty: there is none.
std::string BestCheckpoint(const v1::Job& job);
// All information about one job.
std::string JobDetails(const v1::Job& job, absl::Time now);
// The settings that a retry has changed for this attempt: a line for each, indented.
std::string SettingChanges(const v1::Job& job, uint32_t attempt);
// The line "job x SUCCEEDED: 100/100 steps, loss 1.2345, ..., weights in ..." for a job that has
// ended.
std::string JobSummary(const v1::Job& job);
// Rank, node, step, reason, what followed, and the end of the log; empty without a failure. Several
// lines.
std::string FailureText(const v1::Job& job);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_JOB_TEXT_H_
