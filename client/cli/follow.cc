#include "client/cli/follow.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <istream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/progress.h"
#include "common/status/status.h"

namespace muster::cli {

absl::StatusOr<v1::Job> FollowJob(Console* console, client::MusterClient* client,
                                  const std::string& job_id, const client::StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& until,
                                  v1::Job* seen) {
  Progress progress(console->err_is_terminal ? ProgressForm::kTerminal : ProgressForm::kPlain,
                    absl::Seconds(5), console->columns);
  v1::Job last;
  const absl::Status status = client->Watch(job_id, options, [&](const v1::Job& job) {
    last = job;
    if (seen != nullptr) *seen = job;
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

namespace {

constexpr char kUnreadable[] = "CHECKPOINTS_UNREADABLE";
constexpr int kPollMilliseconds = 100;

// The cause without the commands, which need a coordinator.
std::string Cause(const v1::Job& job) {
  const std::string& reason = job.state_reason();
  return reason.substr(0, reason.find("; once "));
}

enum class Choice { kTryAgain, kFromScratch, kEnd };

// Reads a line of the terminal, in lower case. Empty if the wait was interrupted or the input has
// ended.
std::string ReadAnswer(Console* console, const client::Cancellation* interrupted) {
  while (interrupted == nullptr || !interrupted->cancelled()) {
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, kPollMilliseconds);
    if (ready < 0 && errno != EINTR) return "";
    if (ready <= 0) continue;
    std::string line;
    if (!std::getline(console->in, line)) return "";
    return absl::AsciiStrToLower(absl::StripAsciiWhitespace(line));
  }
  return "";
}

Choice Ask(Console* console, const v1::Job& job, const client::Cancellation* interrupted) {
  console->err << "job " << job.id() << " waits: " << Cause(job) << "\n";
  while (true) {
    console->err << "Try to read them again (t), start again from step 0 (s), or end (e)? "
                 << std::flush;
    const std::string answer = ReadAnswer(console, interrupted);
    if (answer == "t") return Choice::kTryAgain;
    if (answer == "s") return Choice::kFromScratch;
    if (answer == "e" || answer.empty()) return Choice::kEnd;
  }
}

}  // namespace

bool IsHalted(const v1::Job& job) {
  return job.state() == v1::Job::PAUSED && job.reason() == kUnreadable;
}

bool Standstill::Seen(const v1::Job& job) {
  // The coordinator itself ends a job whose workers do not start at all.
  constexpr uint64_t kStarts = 3;
  if (job.step() > step_ || job.restarts() != restarts_ || generation_ == 0) {
    step_ = std::max<uint64_t>(step_, job.step());
    restarts_ = job.restarts();
    generation_ = std::max<uint64_t>(job.generation(), 1);
    return false;
  }
  const bool failed = job.has_failure() && job.failure().generation() == job.generation();
  return job.state() == v1::Job::RECOVERING && failed && job.has_not_before() &&
         job.generation() >= generation_ + kStarts;
}

absl::StatusOr<v1::Job> FollowOrAsk(Console* console, client::MusterClient* client,
                                    const std::string& job_id, const HaltOptions& options,
                                    v1::Job* seen) {
  ASSIGN_OR_RETURN(v1::Job job, client->Get(job_id));
  const bool of_earlier_run = IsHalted(job);
  Standstill standstill;
  const auto waits = [&standstill](const v1::Job& now) {
    return standstill.Seen(now) || IsHalted(now);
  };
  for (bool first = of_earlier_run;; first = false) {
    if (!first) {
      ASSIGN_OR_RETURN(job, FollowJob(console, client, job_id, options.stream, waits, seen));
      if (!IsHalted(job)) return job;
    }
    const bool interrupted = options.interrupted != nullptr && options.interrupted->cancelled();
    Choice choice = Choice::kEnd;
    if (options.from_scratch) {
      choice = Choice::kFromScratch;
    } else if (first) {
      choice = Choice::kTryAgain;
    } else if (console->person_answers && !interrupted) {
      choice = Ask(console, job, options.interrupted);
    }
    if (choice == Choice::kEnd) {
      const bool stopped = options.interrupted != nullptr && options.interrupted->cancelled();
      // The interrupt ends the job.
      return stopped ? FollowJob(console, client, job_id, options.stream, nullptr, seen) : job;
    }
    const bool from_scratch = choice == Choice::kFromScratch;
    console->err << "job " << job_id
                 << (from_scratch ? " starts again from step 0" : " tries its checkpoints again")
                 << std::endl;
    v1::ResumeJobRequest request;
    request.set_job_id(job_id);
    request.set_from_scratch(from_scratch);
    RETURN_IF_ERROR(client
                        ->Steer(&v1::JobService::Stub::ResumeJob, std::move(request),
                                {.requested_by = Requester(console)})
                        .status());
  }
}

ExitCode ReportLeft(Console* console, const v1::Job& job, const std::string& state,
                    const std::string& file, Output output) {
  const bool halted = IsHalted(job);
  const std::string why =
      halted ? Cause(job) : absl::StrCat("its last starts failed: ", FailureText(job));
  std::string text = absl::StrCat("job ", job.id(), " cannot go on here: ", why);
  const char* const once = halted ? "once they can be read" : "once this machine is in order";
  if (state.empty()) {
    absl::StrAppend(&text, "; ", once,
                    ", a job with start: {checkpoint: DIR, what: everything} continues from one of "
                    "its checkpoints, and the same command begins another job");
  } else {
    absl::StrAppend(&text, "; ", once, ", the same command goes on");
    if (halted) {
      absl::StrAppend(&text, "; `muster run --state ", state, " --from-scratch ", file,
                      "` starts the job again from step 0");
    }
  }
  if (IsDocument(output)) console->out << Document(job, output) << std::flush;
  return FailWith(console, text);
}

}  // namespace muster::cli
