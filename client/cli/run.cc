#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/local_coordinator.h"
#include "client/cli/same_command.h"
#include "client/cli/stopper.h"
#include "common/files/files.h"
#include "common/ids/ids.h"
#include "common/jobfile/check_files.h"
#include "common/rpc/address.h"
#include "common/slots/slots.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct RunOptions : CommonOptions, JobFileOptions {
  std::string state;
  uint32_t slots = 0;
  bool another_job = false;
  bool next_attempt = false;
  bool from_scratch = false;

  // The first given option that has no meaning with an address; null: there is none.
  const char* OfOwnCoordinator() const {
    if (!state.empty()) return "--state";
    if (slots > 0) return "--slots";
    return from_scratch ? "--from-scratch" : nullptr;
  }
  RerunMode mode() const {
    if (another_job) return RerunMode::kAnotherJob;
    return next_attempt ? RerunMode::kNextAttempt : RerunMode::kGoOn;
  }
};

// The time to try again. A coordinator on this machine that does not answer has ended, so a long
// wait has no use.
constexpr absl::Duration kLocalRetry = absl::Seconds(5);
// The time in which a coordinator that no longer answers ends, so that its log has the cause.
constexpr absl::Duration kCoordinatorEnds = absl::Seconds(5);
constexpr absl::Duration kAgentStarts = absl::Minutes(1);
// The time for an agent with GPUs to start: it first asks its worker whether the worker is built
// for GPUs.
constexpr absl::Duration kAgentWithGpusStarts = absl::Minutes(2);

class Run {
 public:
  Run(Console* console, const RunOptions& options, const jobfile::JobFile& file)
      : console_(console),
        options_(options),
        file_(file),
        stopper_(&console->interrupts,
                 options.address.empty() ? Coordinator::kOwn : Coordinator::kAnother) {}

  ~Run() {
    // Stops the coordinator while stopper_ exists: the coordinator's watcher calls stopper_.
    if (coordinator_ != nullptr) coordinator_->Stop([this] { return stopper_.hurried(); });
  }

  ExitCode Execute() {
    if (!options_.address.empty()) {
      const char* const own = options_.OfOwnCoordinator();
      if (own == nullptr) return RunAt(options_.address, options_.retry_for);
      return FailWith(console_,
                      absl::StrCat(own,
                                   " is for a run with a coordinator of its own; found "
                                   "--address (or MUSTER_ADDRESS) ",
                                   options_.address, "; leave one of the two out"),
                      kUsage);
    }
    const absl::Status fit = FitsThisMachine();
    if (!fit.ok()) return FailWith(console_, Message(fit), kUsage);
    return RunHere();
  }

 private:
  absl::Status FitsThisMachine() {
    v1::SpecProblems problems = jobfile::CheckFiles(file_.spec);
    if (options_.slots > 0 && file_.spec.world_size() > options_.slots) {
      auto* problem = problems.add_problems();
      problem->set_path("world_size");
      problem->set_message(absl::StrCat("found ", file_.spec.world_size(), "; allowed: at most ",
                                        options_.slots, ", the slots of this run (--slots)"));
    }
    jobfile::AddPlaces(file_, &problems);
    if (problems.problems().empty()) return absl::OkStatus();
    return jobfile::ProblemsError(file_.name, problems);
  }

  // Waits until the coordinator's own agent, which runs the workers, is attached. Without the
  // agent, or with too few GPUs, a job would wait for ever.
  absl::Status HasAgent(client::MusterClient* client) {
    const bool cuda = file_.spec.device() == v1::JobSpec::CUDA;
    for (const absl::Time end = absl::Now() + (cuda ? kAgentWithGpusStarts : kAgentStarts);
         absl::Now() < end; absl::SleepFor(absl::Milliseconds(50))) {
      if (stopper_.interrupted()) return absl::CancelledError("interrupted");
      ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes,
                       client->Read(&v1::ClusterService::Stub::ListNodes, {}));
      // A restart with --state: the node is known before its agent is attached again with its GPUs.
      if (nodes.nodes().empty() || nodes.nodes(0).state() != v1::Node::ATTACHED) continue;
      if (!cuda) return absl::OkStatus();
      const int gpus = nodes.nodes(0).gpus_size();
      if (gpus >= static_cast<int>(file_.spec.world_size())) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(file_.name, ": device: found cuda with world_size ", file_.spec.world_size(),
                       ", which needs as many GPUs; this machine offers ", gpus,
                       gpus == 0 ? ": it has none, or muster-worker is built for the CPU only "
                                   "(docs/how-to/gpu.md)"
                                 : ""));
    }
    return absl::DeadlineExceededError(
        absl::StrCat("the agent of this run did not start; the last lines of the log of its "
                     "coordinator:\n",
                     coordinator_->LogTail()));
  }

  ExitCode RunHere() {
    const auto program = FindMusterd(console_->environment("MUSTER_BIN_DIR"));
    if (!program.ok()) return FailWith(console_, Message(program.status()));
    LocalCoordinatorOptions local;
    local.program = *program;
    local.slots = options_.slots > 0 ? options_.slots : file_.spec.world_size();
    local.state_directory = options_.state;
    const std::string temporary_root = console_->environment("TMPDIR");
    if (!temporary_root.empty()) local.temporary_root = temporary_root;
    local.on_end = [this] { stopper_.CoordinatorEnded(); };
    auto coordinator = LocalCoordinator::Start(local, *stopper_.interruption());
    if (!coordinator.ok()) {
      if (absl::IsCancelled(coordinator.status())) return NotBegun();
      return FailWith(console_, Message(coordinator.status()));
    }
    coordinator_ = *std::move(coordinator);
    stopper_.CoordinatorRuns([this] { coordinator_->Leave(); });
    const ExitCode code = RunAt(coordinator_->address(), kLocalRetry);
    if (code != kUnreachable || stopper_.interrupted()) return code;
    const auto exit = coordinator_->Exited(kCoordinatorEnds);
    return FailWith(console_,
                    absl::StrCat("the coordinator of this run ",
                                 exit.has_value() ? exit->ToString() : "does not answer",
                                 "; the last lines of its log:\n", coordinator_->LogTail()));
  }

  ExitCode RunAt(const std::string& address, absl::Duration retry_for) {
    const auto found = FindCoordinator(address);
    if (!found.ok()) return Fail(console_, found.status());
    const auto client = client::MusterClient::Connect(*found, options_.tls);
    if (!client.ok()) return Fail(console_, client.status());
    if (stopper_.interrupted()) return NotBegun();
    if (coordinator_ != nullptr) {
      const absl::Status enough = HasAgent(client->get());
      if (stopper_.interrupted()) return NotBegun();
      if (absl::IsInvalidArgument(enough)) return FailWith(console_, Message(enough), kUsage);
      if (!enough.ok()) return Fail(console_, enough);
    }
    const auto job = FindOrSubmit(client->get(), retry_for);
    if (!job.ok()) {
      if (stopper_.interrupted()) return NotBegun();
      if (refused_.has_value()) return FailWith(console_, Message(job.status()), *refused_);
      return FailSubmission(console_, job.status(), file_);
    }
    if (coordinator_ == nullptr) {
      for (const std::string& warning : job->warnings()) {
        console_->err << "warning: " << job->id() << " " << warning << std::endl;
      }
    }
    v1::Job seen = *job;
    stopper_.JobRuns(client->get(), job->id());
    const client::StreamOptions stream{.retry_for = retry_for, .cancellation = stopper_.over()};
    const auto ended = coordinator_ == nullptr
                           ? FollowJob(console_, client->get(), job->id(), stream, nullptr, &seen)
                           : FollowOrAsk(console_, client->get(), job->id(),
                                         {.stream = stream,
                                          .interrupted = stopper_.interruption(),
                                          .from_scratch = options_.from_scratch},
                                         &seen);
    stopper_.JobHasEnded();
    if (!ended.ok()) return Unfinished(ended.status(), seen);
    if (!client::HasEnded(ended->state())) {
      return ReportLeft(console_, *ended, options_.state, options_.file, options_.output);
    }
    const ExitCode code = ReportEnd(console_, *ended, options_.output);
    if (ended->state() == v1::Job::CANCELLED && !options_.state.empty()) {
      std::vector<std::string> words = ContinueFrom(console_->command_line, "");
      words.push_back("--retry");
      console_->err << "muster: this command goes on with job " << ended->id() << ":\n"
                    << ShellLine(words) << std::endl;
    }
    return stopper_.interrupted() && !stopper_.leaves() && code != kDone ? kInterrupted : code;
  }

  // Returns the exit code of a run that a signal ended before there was a job.
  ExitCode NotBegun() {
    if (stopper_.interrupted() && !stopper_.leaves()) return kInterrupted;
    console_->err << "muster: ended before the job began; the same command begins it" << std::endl;
    return kPreempted;
  }

  // Returns the exit code of a run that ends before its job.
  ExitCode Unfinished(const absl::Status& why, const v1::Job& job) {
    // A coordinator that leaves may take longer to end than to answer.
    if (coordinator_ != nullptr && stopper_.interrupted()) {
      coordinator_->Stop([this] { return stopper_.hurried(); });
    }
    const auto exit =
        coordinator_ != nullptr ? coordinator_->Exited(absl::ZeroDuration()) : std::nullopt;
    const bool in_order = exit == process::Exit{} && !stopper_.hurried();
    if (!stopper_.interrupted() && !in_order) {
      return absl::IsCancelled(why) ? kUnreachable : Fail(console_, why);
    }
    if (!in_order) {
      console_->err << "muster: ended without waiting for job " << job.id() << std::endl;
      return kInterrupted;
    }
    // The coordinator has let the job save, and has ended after its own signal or one from this
    // run.
    SayHowItGoesOn(job);
    return stopper_.interrupted() && !stopper_.leaves() ? kInterrupted : kPreempted;
  }

  void SayHowItGoesOn(const v1::Job& job) {
    if (IsDocument(options_.output)) console_->out << Document(job, options_.output) << std::flush;
    const std::string& directory = file_.spec.checkpoint().directory();
    const std::string checkpoint =
        directory.empty() ? "" : NewestCheckpoint(files::JoinPath(directory, job.id()));
    std::ostream& err = console_->err;
    err << "muster: job " << job.id() << " has ended before its last step and can go on; ";
    if (!checkpoint.empty()) {
      err << "its newest checkpoint is " << checkpoint;
    } else if (directory.empty()) {
      err << "it writes no checkpoints (`checkpoint` in the job file), so it starts over";
    } else {
      err << "it has written no checkpoint yet, so it begins again where it began";
    }
    const bool kept = !options_.state.empty();
    err << (kept ? "; the same command continues it:\n" : "; this command continues it:\n")
        << ShellLine(ContinueFrom(console_->command_line, kept ? "" : checkpoint)) << std::endl;
  }

  // Finds the job of this file that an earlier run with --state has left, if it can continue;
  // otherwise submits the job.
  absl::StatusOr<v1::Job> FindOrSubmit(client::MusterClient* client, absl::Duration retry_for) {
    const client::RetryOptions retry{.retry_for = retry_for, .cancellation = stopper_.over()};
    const bool own = coordinator_ != nullptr;
    while (own && !options_.state.empty()) {
      ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client->List());
      const SameCommand same = Decide({list.jobs().begin(), list.jobs().end()}, options_.Path(),
                                      file_.spec, options_.mode(), options_.settings);
      if (same.what == SameCommand::What::kSubmit) {
        if (!same.why.empty()) console_->err << same.why << std::endl;
        break;
      }
      if (same.what == SameCommand::What::kFailed || same.what == SameCommand::What::kRefuse) {
        return Refuse(same);
      }
      console_->err << same.why << std::endl;
      if (same.what == SameCommand::What::kFollow) return same.job;
      const client::SteerOptions next{.retry = retry, .requested_by = Requester(console_)};
      if (same.what == SameCommand::What::kNextAttempt) {
        return client->Retry(same.job.id(), next, {.settings = same.settings});
      }
      if (same.what == SameCommand::What::kStop) {
        RETURN_IF_ERROR(client->Stop(same.job.id(), next).status());
      }
      const client::StreamOptions wait{.retry_for = retry_for,
                                       .cancellation = stopper_.interruption()};
      RETURN_IF_ERROR(client->Wait(same.job.id(), wait).status());
    }
    return client->Submit(file_.spec, own ? NewId() : "", retry, options_.Path());
  }

  absl::Status Refuse(const SameCommand& same) {
    if (same.what == SameCommand::What::kRefuse) {
      refused_ = kUsage;
      return absl::FailedPreconditionError(same.why);
    }
    refused_ = kJobFailed;
    std::vector<std::string> words = ContinueFrom(console_->command_line, "");
    words.push_back("--retry");
    const std::string retry = ShellLine(words);
    words.back() = "--new";
    return absl::FailedPreconditionError(
        absl::StrCat(same.why, "\nIts next attempt, from its newest checkpoint: ", retry,
                     "\nAnother job: ", ShellLine(words)));
  }

  // An id for the job. A coordinator with an empty store would give every run the same id. Runs
  // with the same checkpoint directory would conflict, even if they start within the same second.
  std::string NewId() const {
    return absl::StrCat(file_.spec.name(), "-",
                        absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
                        NewUuid().substr(0, 4));
  }

  Console* const console_;
  const RunOptions& options_;
  const jobfile::JobFile& file_;
  // The exit code if FindOrSubmit has decided that no job runs.
  std::optional<ExitCode> refused_;
  std::unique_ptr<LocalCoordinator> coordinator_;
  // Declared last, because it uses coordinator_.
  Stopper stopper_;
};

}  // namespace

void AddRun(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app->add_subcommand(
      "run", "Run a job to its end; without an address it runs on this machine");
  command->footer(
      "Without an address it starts its own coordinator, and ends it with the job. Ctrl-C "
      "stops the job "
      "(with a\ncheckpoint if it writes them); a second Ctrl-C, or SIGQUIT, ends everything at "
      "once. SIGTERM, SIGHUP,\nSIGUSR1 and SIGUSR2 let the job save a checkpoint and end (exit "
      "code 105); it can go on later.");
  AddJobFileOptions(command, options.get());
  AddCommonOptions(command, console, options.get());
  command
      ->add_option("--slots", options->slots,
                   "Ranks that this machine may run (default: as many as the job has)")
      ->check(CLI::Range(uint32_t{1}, kMostSlots))
      ->type_name("N");
  auto* state = command->add_option(
      "--state", options->state,
      "Keep the coordinator's state there; after a kill, a time limit or a signal other than "
      "Ctrl-C, the same command continues its job");
  state->type_name("DIR");
  auto* another = command->add_flag(
      "--new", options->another_job,
      "With --state: begin another job, even if one of this job file could go on; one that has "
      "not ended is stopped");
  another->needs(state);
  command
      ->add_flag("--retry", options->next_attempt,
                 "With --state: begin the next attempt of this job file's newest job, which failed "
                 "or was stopped, with the values of --set")
      ->needs(state)
      ->excludes(another);
  command->add_flag("--from-scratch", options->from_scratch,
                    "If none of the job's checkpoints can be read, start it again from step 0");
  AddRetryOption(command, options.get());
  command->callback([=] {
    // A closed pipe must not prevent the stop of the coordinator.
    signal(SIGPIPE, SIG_IGN);
    // An interrupt during the read of the file ends the program.
    const auto file = LoadOrExplain(console, *options);
    *code = file == nullptr ? kUsage : Run(console, *options, *file).Execute();
  });
}

}  // namespace muster::cli
