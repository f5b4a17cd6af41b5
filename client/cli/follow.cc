#include "client/cli/follow.h"

#include "absl/time/clock.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/progress.h"
#include "common/status/status.h"

namespace muster::cli {

absl::StatusOr<v1::Job> FollowJob(Console* console, client::MusterClient* client,
                                  const std::string& job_id, const client::StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& until) {
  Progress progress(console->err_is_terminal ? ProgressForm::kTerminal : ProgressForm::kPlain);
  v1::Job last;
  const absl::Status status = client->Watch(job_id, options, [&](const v1::Job& job) {
    last = job;
    PrintProgress(progress.Update(job, absl::Now()), &console->err);
    return until == nullptr || !until(job);
  });
  console->err << progress.Interrupt() << std::flush;
  RETURN_IF_ERROR(status);
  return last;
}

ExitCode ReportEnd(Console* console, const v1::Job& job, Output output) {
  if (IsDocument(output)) {
    console->out << Document(job, output);
  } else {
    console->out << JobSummary(job) << "\n";
  }
  console->out.flush();
  if (job.state() == v1::Job::FAILED) {
    const std::string failure = FailureText(job);
    console->err << "muster: job " << job.id()
                 << " failed: " << (failure.empty() ? job.state_reason() + "\n" : failure)
                 << std::flush;
  }
  return ExitCodeOf(job.state());
}

}  // namespace muster::cli
