#include <google/protobuf/util/message_differencer.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/halted.h"
#include "client/cli/local_coordinator.h"
#include "client/cli/stopper.h"
#include "common/ids/ids.h"
#include "common/jobfile/check_files.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/address.h"
#include "common/slots/most_slots.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct RunOptions : CommonOptions, JobFileOptions {
  std::string state;
  uint32_t slots = 0;
  bool from_scratch = false;
};

// A coordinator on this machine that does not answer has ended; there is no use in waiting long.
constexpr absl::Duration kLocalRetry = absl::Seconds(5);
constexpr absl::Duration kAgentStarts = absl::Minutes(1);
// An agent with GPUs first asks its worker whether it is built for them.
constexpr absl::Duration kAgentWithGpusStarts = absl::Minutes(2);

class Run {
 public:
  Run(Console* console, const RunOptions& options, const jobfile::JobFile& file)
      : console_(console), options_(options), file_(file), stopper_(&console->interrupts) {}

  ExitCode Execute() {
    if (!options_.address.empty()) return RunAt(options_.address, options_.retry_for);
    const absl::Status fit = FitsThisMachine();
    if (!fit.ok()) return FailWith(console_, Message(fit), kUsage);
    const ExitCode code = RunHere();
    if (coordinator_ != nullptr) coordinator_->Stop([this] { return stopper_.hurried(); });
    return code;
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

  // Its own agent runs the workers: without it, or with too few GPUs, a job would wait for ever.
  // Waits until the agent is there.
  absl::Status HasAgent(client::MusterClient* client) {
    const bool cuda = file_.spec.device() == v1::JobSpec::CUDA;
    for (const absl::Time end = absl::Now() + (cuda ? kAgentWithGpusStarts : kAgentStarts);
         absl::Now() < end; absl::SleepFor(absl::Milliseconds(50))) {
      if (stopper_.interrupted()) return absl::CancelledError("interrupted");
      ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, client->Nodes());
      // After a restart with --state the node is known before its agent is back with its GPUs.
      if (nodes.nodes().empty() || nodes.nodes(0).state() != v1::Node::ATTACHED) continue;
      if (!cuda) return absl::OkStatus();
      const int gpus = nodes.nodes(0).gpus_size();
      if (gpus >= static_cast<int>(file_.spec.world_size())) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          file_.name, ": device: found cuda with world_size ", file_.spec.world_size(),
          ", which needs as many GPUs; this machine offers ", gpus,
          gpus == 0 ? ": it has none, or muster-worker is built for the CPU only (docs/gpu.md)"
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
    auto coordinator = LocalCoordinator::Start(local, *stopper_.interruption());
    if (!coordinator.ok()) {
      if (stopper_.interrupted()) return kInterrupted;
      return FailWith(console_, Message(coordinator.status()));
    }
    coordinator_ = *std::move(coordinator);
    const ExitCode code = RunAt(coordinator_->address(), kLocalRetry);
    if (code != kUnreachable || stopper_.interrupted()) return code;
    const auto exit = coordinator_->Exited();
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
    if (stopper_.interrupted()) return kInterrupted;
    if (coordinator_ != nullptr) {
      const absl::Status enough = HasAgent(client->get());
      if (stopper_.interrupted()) return kInterrupted;
      if (absl::IsInvalidArgument(enough)) return FailWith(console_, Message(enough), kUsage);
      if (!enough.ok()) return Fail(console_, enough);
    }
    const auto job = FindOrSubmit(client->get(), retry_for);
    if (!job.ok()) {
      return stopper_.interrupted() ? kInterrupted : FailSubmission(console_, job.status(), file_);
    }
    if (coordinator_ == nullptr) {
      for (const std::string& warning : job->warnings()) {
        console_->err << "warning: " << warning << std::endl;
      }
    }
    stopper_.JobRuns(client->get(), job->id());
    const client::StreamOptions stream{.retry_for = retry_for, .cancellation = stopper_.at_once()};
    const auto ended = coordinator_ == nullptr
                           ? FollowJob(console_, client->get(), job->id(), stream)
                           : FollowOrAsk(console_, client->get(), job->id(),
                                         {.stream = stream,
                                          .interrupted = stopper_.interruption(),
                                          .from_scratch = options_.from_scratch});
    stopper_.JobHasEnded();
    if (!ended.ok()) {
      if (!stopper_.interrupted()) return Fail(console_, ended.status());
      console_->err << "muster: ended without waiting for job " << job->id() << std::endl;
      return kInterrupted;
    }
    if (!client::HasEnded(ended->state())) {
      return ReportLeft(console_, *ended, options_.state, options_.file);
    }
    const ExitCode code = ReportEnd(console_, *ended, options_.output);
    return stopper_.interrupted() && code != kDone ? kInterrupted : code;
  }

  // With --state: the same job, if an earlier run was killed during it.
  absl::StatusOr<v1::Job> FindOrSubmit(client::MusterClient* client, absl::Duration retry_for) {
    if (!options_.state.empty() && coordinator_ != nullptr) {
      ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client->List());
      for (const v1::Job& job : list.jobs()) {
        if (client::HasEnded(job.state())) continue;
        if (google::protobuf::util::MessageDifferencer::Equals(
                jobspec::ResolveDefaults(job.spec()), jobspec::ResolveDefaults(file_.spec))) {
          console_->err << "job " << job.id() << " continues from step " << job.step() << std::endl;
          return job;
        }
        return absl::FailedPreconditionError(absl::StrCat(
            options_.state, " holds the unfinished job ", job.id(),
            ", which has another job file; finish it with its own job file, or use another "
            "--state"));
      }
    }
    return client->Submit(file_.spec, coordinator_ != nullptr ? NewId() : "",
                          {.retry_for = retry_for, .cancellation = stopper_.at_once()});
  }

  // A coordinator with an empty store would give every run the same id, and runs with the same
  // checkpoint directory would conflict there, even if they start within the same second.
  std::string NewId() const {
    return absl::StrCat(file_.spec.name(), "-",
                        absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
                        NewUuid().substr(0, 4));
  }

  Console* const console_;
  const RunOptions& options_;
  const jobfile::JobFile& file_;
  Stopper stopper_;
  std::unique_ptr<LocalCoordinator> coordinator_;
};

}  // namespace

void AddRun(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app->add_subcommand(
      "run", "Run a job to its end; without an address it runs on this machine");
  command->footer(
      "Without an address it starts its own coordinator, and ends it with the job. Ctrl-C "
      "stops the job "
      "(with a\ncheckpoint if it writes them); a second Ctrl-C ends everything at once.");
  AddJobFileOptions(command, options.get());
  AddCommonOptions(command, console, options.get());
  command
      ->add_option("--slots", options->slots,
                   "Ranks that this machine may run (default: as many as the job has)")
      ->check(CLI::Range(uint32_t{1}, kMostSlots))
      ->type_name("N");
  command
      ->add_option(
          "--state", options->state,
          "Keep the coordinator's state there; after a kill, the same command continues its job")
      ->type_name("DIR");
  command->add_flag("--from-scratch", options->from_scratch,
                    "If none of the job's checkpoints can be read, start it again from step 0");
  AddRetryOption(command, options.get());
  command->callback([=] {
    // A closed pipe must not keep the coordinator from being stopped.
    signal(SIGPIPE, SIG_IGN);
    // An interrupt while the file is read ends the program.
    const auto file = LoadOrExplain(console, *options);
    *code = file == nullptr ? kUsage : Run(console, *options, *file).Execute();
  });
}

}  // namespace muster::cli
