#include "client/cli/steer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/download.h"
#include "client/files/partial_file.h"
#include "client/cli/terminal/escaped_stream.h"
#include "client/cli/terminal/operation_text.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::cli {

void AddSteeringOptions(CLI::App* command, Console* console, SteeringOptions* options,
                        bool schedulable) {
  command->add_option("JOB", options->job, "The job's id")->required();
  command->add_flag("--wait", options->wait, "Return when the operation is done (1: it failed)");
  AddDurationOption(command, "--timeout", &options->timeout,
                    "With --wait: wait at most this long (exit code 101)");
  if (schedulable) AddAtStepOption(command, &options->at_step);
  AddCommonOptions(command, console, options);
  AddRetryOption(command, options);
}

namespace {

// Waits for the end of the operation. Shows its progress on a terminal meanwhile.
absl::StatusOr<v1::Operation> EndOf(Console* console, client::MusterClient& client,
                                    const SteeringOptions& options, const std::string& name) {
  constexpr absl::Duration kRedraw = absl::Seconds(1);
  const absl::Time deadline = SteadyNow() + options.timeout;
  while (true) {
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
    const absl::Duration wait = console->err_is_terminal ? std::min(left, kRedraw) : left;
    auto ended = client.WaitOperation(name, {.retry_for = options.retry_for, .timeout = wait});
    if (!absl::IsDeadlineExceeded(ended.status()) || wait == left) {
      if (console->err_is_terminal) console->err << EraseLine << std::flush;
      return ended;
    }
    const auto now = client.GetOperation(name);
    if (!now.ok()) continue;
    console->err << EraseLine << CutToColumns(now->progress(), console->columns()) << std::flush;
  }
}

}  // namespace

ExitCode AwaitEnd(Console* console, client::MusterClient& client, const SteeringOptions& options,
                  v1::Operation* operation) {
  if (!options.wait || operation->done()) return kDone;
  // The printed name identifies the operation if the user interrupts the wait.
  console->err << OperationLine(*operation) << std::endl;
  const auto ended = EndOf(console, client, options, operation->name());
  if (absl::IsDeadlineExceeded(ended.status())) {
    return FailWith(console,
                    absl::StrCat("operation ", operation->name(), " is not done after ",
                                 absl::FormatDuration(options.timeout)),
                    kTimedOut);
  }
  if (!ended.ok()) return Fail(console, ended.status());
  *operation = *ended;
  return kDone;
}

ExitCode ShowOperation(Console* console, client::MusterClient& client,
                       const SteeringOptions& options, v1::Operation operation,
                       v1::Operation* last) {
  if (const ExitCode code = AwaitEnd(console, client, options, &operation); code != kDone) {
    return code;
  }
  if (IsDocument(options.output)) {
    console->out << Document(operation, options.output);
  } else {
    console->out << OperationLine(operation) << "\n";
  }
  if (last != nullptr) *last = operation;
  return operation.has_error() ? kOtherError : kDone;
}

ExitCode Steer(Console* console, const SteeringOptions& options, const Change& change,
               v1::Operation* last) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto operation = change(**client, options.job,
                                {.retry = {.retry_for = options.retry_for},
                                 .at_step = options.at_step,
                                 .requested_by = Requester(console)});
  if (!operation.ok()) return Fail(console, operation.status());
  return ShowOperation(console, **client, options, *operation, last);
}

namespace {

template <typename Stub, typename Request>
void AddPlain(CLI::App* app, Console* console, ExitCode* code, const std::string& name,
              const std::string& help,
              client::Connection::Unary<Stub, Request, v1::Operation> rpc) {
  auto options = std::make_shared<SteeringOptions>();
  CLI::App* command = app->add_subcommand(name, help);
  AddSteeringOptions(command, console, options.get());
  command->callback([=] { *code = Steer(console, *options, rpc, Request()); });
}

}  // namespace

void AddPause(CLI::App* app, Console* console, ExitCode* code) {
  AddPlain(app, console, code, "pause", "Halt a running job at its next step; it keeps its slots",
           &v1::JobService::Stub::PauseJob);
}

void AddResume(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  auto from_path = std::make_shared<std::string>();
  auto from_scratch = std::make_shared<bool>(false);
  CLI::App* command =
      app->add_subcommand("resume",
                          "Continue a job that is paused, that was stopped, or that has failed. A "
                          "job that halted because its checkpoints cannot be read tries to read "
                          "them again");
  AddSteeringOptions(command, console, options.get(), /*schedulable=*/false);
  CLI::Option* from = command->add_option(
      "--from", *from_path,
      "Continue from this checkpoint directory, which every node must see (a job that "
      "was stopped or has failed, or that halted with CHECKPOINTS_UNREADABLE)");
  command
      ->add_flag(
          "--from-scratch", *from_scratch,
          "Start again from step 0; the job's checkpoints are kept (a job that was stopped or has "
          "failed, or that halted with CHECKPOINTS_UNREADABLE)")
      ->excludes(from);
  command->callback([=] {
    v1::ResumeJobRequest request;
    request.set_from(AbsolutePath(*from_path));
    request.set_from_scratch(*from_scratch);
    *code = Steer(console, *options, &v1::JobService::Stub::ResumeJob, request);
  });
}

void AddCheckpoint(CLI::App* app, Console* console, ExitCode* code) {
  AddPlain(app, console, code, "checkpoint",
           "Write a checkpoint of a running job after its current step",
           &v1::ControlService::Stub::SaveCheckpoint);
}

namespace {

// Gathers the state for this client, and receives the file.
ExitCode GatherAndDownload(Console* console, SteeringOptions options,
                           v1::GatherOptimizerStateRequest request, const DownloadTarget& target) {
  // Checks first whether the file can be received, so that nothing is gathered in vain.
  if (const absl::Status bad = CheckNewFile(target.path, target.existing); !bad.ok()) {
    return FailWith(console, Message(bad));
  }
  request.mutable_file()->set_download(true);
  options.wait = true;
  v1::Operation last;
  const ExitCode code =
      Steer(console, options, &v1::ControlService::Stub::GatherOptimizerState, request, &last);
  if (code != kDone) return code;
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  return Download(console, **client, options, last, target);
}

}  // namespace

void AddGatherOptimizerState(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : SteeringOptions {
    std::string path;
    v1::OptimizerStateFile::Format format = v1::OptimizerStateFile::TORCH;
    v1::OptimizerStateFile::Key key = v1::OptimizerStateFile::INDEX;
    bool overwrite = false;
    bool hold = false;
    bool download = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand(
      "gather-optimizer-state",
      "Write the optimizer's state of a running job to one file that Python reads, after its "
      "current step, while training continues");
  AddSteeringOptions(command, console, options.get());
  command
      ->add_option("--out", options->path,
                   "The file, on the node of rank 0; with --download, on this machine")
      ->required();
  command->add_flag("--download", options->download,
                    "Wait for the file, and bring it from the cluster to this machine; `muster "
                    "operation JOB/N --download FILE` continues an interrupted download");
  const std::map<std::string, v1::OptimizerStateFile::Format> formats = {
      {"torch", v1::OptimizerStateFile::TORCH},
      {"safetensors", v1::OptimizerStateFile::SAFETENSORS}};
  command
      ->add_option(
          "--format", options->format,
          "torch (as torch.save writes optimizer.state_dict(); the default) or safetensors")
      ->transform(CLI::CheckedTransformer(formats).description("torch|safetensors"));
  const std::map<std::string, v1::OptimizerStateFile::Key> keys = {
      {"index", v1::OptimizerStateFile::INDEX}, {"name", v1::OptimizerStateFile::NAME}};
  command
      ->add_option("--key", options->key,
                   "What stands for a parameter in a torch file: its index in the source model "
                   "(the default), or its name")
      ->transform(CLI::CheckedTransformer(keys).description("index|name"));
  command->add_flag("--overwrite", options->overwrite, "Replace the file if it exists");
  command->add_flag("--hold", options->hold,
                    "Let training wait until the file is written, instead of making a copy of the "
                    "state in memory");
  command->callback([=] {
    v1::GatherOptimizerStateRequest request;
    v1::OptimizerStateFile& file = *request.mutable_file();
    file.set_format(options->format);
    file.set_key(options->key);
    file.set_hold(options->hold);
    const std::string& path = options->path;
    if (options->download) {
      *code = path.empty() ? FailWith(console, kOutIsEmpty, kUsage)
                           : GatherAndDownload(console, *options, std::move(request),
                                               TargetOf(path, options->overwrite));
      return;
    }
    // The coordinator refuses a path with a '/' at its end, because a file has none.
    file.set_path(path.empty() || path.back() != '/' ? AbsolutePath(path) : path);
    file.set_overwrite(options->overwrite);
    *code = Steer(console, *options, &v1::ControlService::Stub::GatherOptimizerState, request);
  });
}

void AddStage(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  auto stage = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand(
      "stage",
      "Evaluate the model of a running or paused job after its current step, without effect on its "
      "training; with --wait the metrics are shown, and `muster metrics JOB` has them in any case");
  AddSteeringOptions(command, console, options.get());
  command
      ->add_option("STAGE", *stage,
                   "validate, over data.validate of the job file, or test, over data.test")
      ->required();
  command->callback([=] {
    v1::RunStageRequest request;
    request.set_stage(*stage);
    *code = Steer(console, *options, &v1::ControlService::Stub::RunStage, request);
  });
}

namespace {

void AddSetLearningRate(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  auto rate = std::make_shared<double>(0);
  CLI::App* command = app->add_subcommand(
      "set-lr",
      "Change the learning rate of a running job from now on; its schedule multiplies the new "
      "value as it did the old one");
  AddSteeringOptions(command, console, options.get());
  command->add_option("VALUE", *rate, "As lr of the optimizer in the job file")
      ->check([](const std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) ? "" : absl::StrCat("'", text, "' is not a number");
      })
      ->required();
  command->callback([=] {
    v1::SetLearningRateRequest request;
    request.set_learning_rate(*rate);
    *code = Steer(console, *options, &v1::ControlService::Stub::SetLearningRate, request);
  });
}

void AddSkipData(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  auto samples = std::make_shared<uint64_t>(0);
  auto dry_run = std::make_shared<bool>(false);
  CLI::App* command = app->add_subcommand(
      "skip-data",
      "Leave out the samples that a running job would train on next, such as those of a bad shard; "
      "they count as consumed in the epoch");
  AddSteeringOptions(command, console, options.get());
  command->add_option("N", *samples, "How many samples, of all ranks together")
      ->required()
      ->check([](const std::string& text) {
        uint64_t number = 0;
        return absl::SimpleAtoi(text, &number) && number > 0
                   ? ""
                   : absl::StrCat("'", text, "' is not a number of samples: 1, 2, ...");
      });
  command->add_flag("--dry-run", *dry_run,
                    "Print which samples would be left out; change nothing. Waits for the answer");
  command->callback([=] {
    v1::SkipDataRequest request;
    request.set_samples(*samples);
    request.set_dry_run(*dry_run);
    options->wait |= *dry_run;
    *code = Steer(console, *options, &v1::ControlService::Stub::SkipData, request);
  });
}

}  // namespace

void AddSettings(CLI::App* app, Console* console, ExitCode* code) {
  AddSetLearningRate(app, console, code);
  AddSkipData(app, console, code);
}

}  // namespace muster::cli
