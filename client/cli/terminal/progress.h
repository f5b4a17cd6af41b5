// The progress that `run`, `watch` and `submit --wait` show while a job runs. Pure: the input is
// states and times, the output is text.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_
#define MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

enum class ProgressForm {
  kTerminal,  // a line that is redrawn, below the lines of events
  kPlain,     // a few lines only
};

// A line such as:
//     fit  120/1000  12%  loss 2.3456  validation 2.5012 (41.20%)  1.23k tokens/s  1m20s left
// The loss and the accuracy of the validation follow "validation". The speed of a model without
// tokens is in samples/s.
std::string ProgressLine(const v1::Job& job);

// One job's progress. Not thread-safe.
class Progress {
 public:
  // `plain_interval`: the shortest time between plain lines. Events have no limit: another state or
  // stage, a validation, a test, a checkpoint, a failure, an event of the job. `columns`: the
  // columns of the terminal, asked at each redraw; 0: not known. A longer line is cut.
  explicit Progress(ProgressForm form, absl::Duration plain_interval = absl::Seconds(5),
                    std::function<int()> columns = nullptr);

  // The text to print (PrintProgress) for this state of the job; may be empty. Begins with
  // kEraseLine (escaped_stream.h) if the text replaces a line.
  std::string Update(const v1::Job& job, absl::Time now);
  // The text to print before any other output. The text ends a line that is redrawn.
  std::string Interrupt();

 private:
  // The events between the last state and `job`, one line each.
  std::string Events(const v1::Job& job) const;

  const ProgressForm form_;
  const absl::Duration plain_interval_;
  const std::function<int()> columns_;
  v1::Job last_;
  std::string last_line_;
  absl::Time last_plain_ = absl::InfinitePast();
  bool line_is_open_ = false;
};

// Prints a text of Progress.
void PrintProgress(std::string text, std::ostream* out);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_PROGRESS_H_
