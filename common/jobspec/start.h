// What `start.checkpoint` of a job file names.
#ifndef MUSTER_COMMON_JOBSPEC_START_H_
#define MUSTER_COMMON_JOBSPEC_START_H_

#include <cstdint>
#include <optional>
#include <string>

namespace muster::jobspec {

// True for the directory of a checkpoint: a text with a '/'. Any other text names a job.
bool IsDirectory(const std::string& checkpoint);

struct JobAndStep {
  std::string job;
  std::optional<uint64_t> step;  // absent: its newest checkpoint
};
// "JOB" or "JOB@STEP"; absent if the text is neither.
std::optional<JobAndStep> ParseJobAndStep(const std::string& checkpoint);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_START_H_
