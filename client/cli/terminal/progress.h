// What `run`, `watch` and `submit --wait` show while a job runs. Pure: states and times in, text
// out.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_
#define MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

enum class ProgressForm {
  kTerminal,  // one line that is redrawn, with the events above it
  kPlain,     // lines only, few of them
};

// For example:
//     fit  120/1000  12%  loss 2.3456  validation 2.5012 (41.20%)  1.23k tokens/s  1m20s left
// After "validation" come its loss and its accuracy. For a model without tokens the speed is in
// samples/s.
std::string ProgressLine(const v1::Job& job);

// One job's progress. Not thread-safe.
class Progress {
 public:
  // Plain lines come at most this often, except for events: another state or stage, a validation, a
  // checkpoint, a failure, an event of the job.
  explicit Progress(ProgressForm form, absl::Duration plain_interval = absl::Seconds(5));

  // What to print now that the job is like this; may be nothing.
  std::string Update(const v1::Job& job, absl::Time now);
  // What to print before anything else is printed: ends a line that is being drawn over.
  std::string Interrupt();

 private:
  // The events between the last state and this one, a line each.
  std::string Events(const v1::Job& job) const;

  const ProgressForm form_;
  const absl::Duration plain_interval_;
  v1::Job last_;
  std::string last_line_;
  absl::Time last_plain_ = absl::InfinitePast();
  bool line_is_open_ = false;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_
