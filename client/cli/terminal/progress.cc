#include "client/cli/terminal/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/terminal/escaped_stream.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/metrics_text.h"

namespace muster::cli {
namespace {

// The samples of all ranks in one step.
uint64_t SamplesPerStep(const v1::JobSpec& spec) {
  const uint64_t accumulate = std::max<uint64_t>(1, spec.batch().accumulate());
  return uint64_t{spec.world_size()} * accumulate * spec.batch().per_rank();
}

bool Runs(v1::Job::State state) {
  return state == v1::Job::RUNNING || state == v1::Job::STOPPING || state == v1::Job::PAUSED;
}

}  // namespace

std::string ProgressLine(const v1::Job& job) {
  std::string line = absl::StrCat(job.stage(), "  ", Steps(job));
  if (job.total_steps() > 0)
    absl::StrAppend(&line, "  ", 100 * job.step() / job.total_steps(), "%");
  if (job.has_loss()) absl::StrAppend(&line, "  loss ", Loss(true, job.loss()));
  if (job.has_validation_loss()) {
    absl::StrAppend(&line, "  validation ", Loss(true, job.validation_loss()));
    if (job.has_validation_accuracy()) {
      absl::StrAppend(&line, " (", Percent(job.validation_accuracy()), ")");
    }
  }
  if (job.state() == v1::Job::RUNNING && job.samples_per_second() > 0) {
    absl::StrAppend(&line, "  ",
                    job.has_tokens_per_second()
                        ? absl::StrCat(WithUnit(job.tokens_per_second()), " tokens/s")
                        : absl::StrCat(WithUnit(job.samples_per_second()), " samples/s"));
    if (job.total_steps() > job.step()) {
      const double seconds = static_cast<double>(job.total_steps() - job.step()) *
                             SamplesPerStep(job.spec()) / job.samples_per_second();
      absl::StrAppend(&line, "  ", HumanDuration(absl::Seconds(seconds)), " left");
    }
  }
  return line;
}

Progress::Progress(ProgressForm form, absl::Duration plain_interval, std::function<int()> columns)
    : form_(form), plain_interval_(plain_interval), columns_(std::move(columns)) {}

std::string Progress::Events(const v1::Job& job) const {
  std::string events;
  // The summary has the failure of a job in the state FAILED.
  const bool is_new = job.has_failure() && job.state() != v1::Job::FAILED &&
                      job.failure().SerializeAsString() != last_.failure().SerializeAsString();
  if (is_new) absl::StrAppend(&events, "failure: ", FailureText(job));
  // Events from before the first look are not new.
  if (!last_.id().empty()) {
    for (const v1::JobEvent& event : NewEvents(last_, job)) {
      absl::StrAppend(&events, EventLine(event), "\n");
    }
  }
  if (job.state() != last_.state() ||
      (!Runs(job.state()) && job.state_reason() != last_.state_reason())) {
    absl::StrAppend(&events, job.id(), ": ", StateName(job.state()));
    // The details of a failure are printed once.
    const bool told = job.state() == v1::Job::FAILED && job.has_failure();
    if (!job.state_reason().empty() && !told) absl::StrAppend(&events, ": ", job.state_reason());
    absl::StrAppend(&events, "\n");
  }
  if (job.has_validation_loss() &&
      (!last_.has_validation_loss() || job.validation_step() != last_.validation_step() ||
       job.validation_loss() != last_.validation_loss())) {
    absl::StrAppend(&events, "step ", job.validation_step(), ": validation loss ",
                    Loss(true, job.validation_loss()));
    if (job.has_validation_perplexity()) {
      absl::StrAppend(&events, absl::StrFormat(", perplexity %.4g", job.validation_perplexity()));
    }
    if (job.has_validation_accuracy()) {
      absl::StrAppend(&events, ", accuracy ", Percent(job.validation_accuracy()));
    }
    absl::StrAppend(&events, "\n");
  }
  if (job.has_test() && (!last_.has_test() || job.test_step() != last_.test_step() ||
                         job.test().SerializeAsString() != last_.test().SerializeAsString())) {
    absl::StrAppend(&events, "step ", job.test_step(), ": test loss ",
                    Loss(true, job.test().loss()));
    if (job.test().has_perplexity()) {
      absl::StrAppend(&events, absl::StrFormat(", perplexity %.4g", job.test().perplexity()));
    }
    absl::StrAppend(&events, AccuracyText(job.test()), "\n");
  }
  const uint64_t newest = last_.checkpoints().empty() ? 0 : last_.checkpoints().rbegin()->step();
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    // Checkpoints from before the first look are not new.
    if (!last_.id().empty() && checkpoint.step() > newest) {
      absl::StrAppend(&events, "step ", checkpoint.step(), ": checkpoint ", checkpoint.path(),
                      "\n");
    }
  }
  return events;
}

std::string Progress::Update(const v1::Job& job, absl::Time now) {
  const std::string events = Events(job);
  const bool another_stage = job.stage() != last_.stage() && !job.stage().empty();
  // A job that has ended gets a summary.
  std::string line = Runs(job.state()) && !job.stage().empty() ? ProgressLine(job) : "";
  last_ = job;
  std::string text;
  if (form_ == ProgressForm::kTerminal) {
    line = CutToColumns(line, columns_ != nullptr ? columns_() : 0);
    if (events.empty() && line == last_line_) return "";
    if (line_is_open_) text = kEraseLine;
    absl::StrAppend(&text, events, line);
    line_is_open_ = !line.empty();
    last_line_ = line;
    return text;
  }
  text = events;
  if (!line.empty() && line != last_line_ &&
      (another_stage || now - last_plain_ >= plain_interval_)) {
    absl::StrAppend(&text, line, "\n");
    last_line_ = line;
    last_plain_ = now;
  }
  return text;
}

std::string Progress::Interrupt() {
  if (!line_is_open_) return "";
  line_is_open_ = false;
  last_line_.clear();
  return "\n";
}

void PrintProgress(std::string text, std::ostream* out) {
  if (absl::StartsWith(text, kEraseLine)) {
    text.erase(0, sizeof(kEraseLine) - 1);
    *out << EraseLine;
  }
  *out << text << std::flush;
}

}  // namespace muster::cli
