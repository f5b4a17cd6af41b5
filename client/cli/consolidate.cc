#include "client/checkpoints/consolidate.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/same_command.h"
#include "client/cli/steer.h"
#include "client/cli/terminal/job_text.h"
#include "common/modelfolder/plan.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

using safetensors::DType;

struct Options : SteeringOptions {
  std::string out;
  DType dtype = DType::kF32;
  uint64_t max_shard_bytes = modelfolder::kShardBytes;
  bool overwrite = false;
  bool hold = false;
};

v1::ModelFolder::Dtype ToWire(DType dtype) {
  if (dtype == DType::kBF16) return v1::ModelFolder::BFLOAT16;
  return dtype == DType::kF16 ? v1::ModelFolder::FLOAT16 : v1::ModelFolder::FLOAT32;
}

// Returns whether `target` is a path, and not a job's id.
bool IsFolder(const std::string& target) {
  return target.find('/') != std::string::npos || target == "." || target == "..";
}

ExitCode FromCheckpoint(Console* console, const Options& options) {
  if (options.at_step.has_value() || options.hold || options.wait) {
    return FailWith(console,
                    "--at-step, --hold and --wait are for a running job; a checkpoint is "
                    "consolidated at once",
                    kUsage);
  }
  const std::string out = AbsolutePath(options.out);
  const auto done = checkpoints::Consolidate(options.job, out,
                                             {.dtype = options.dtype,
                                              .max_shard_bytes = options.max_shard_bytes,
                                              .overwrite = options.overwrite});
  if (!done.ok()) {
    std::string why = Message(done.status());
    // The folder has no manifest: the message names the checkpoint that the user may mean.
    if (absl::IsNotFound(done.status())) {
      const std::string newest = NewestCheckpoint(options.job);
      if (!newest.empty()) {
        absl::StrAppend(&why, "; the newest checkpoint in this folder is ", newest);
      }
    }
    return FailWith(console, why);
  }
  if (IsDocument(options.output)) {
    const nlohmann::ordered_json json = {{"path", out},
                                         {"step", done->step},
                                         {"bytes", done->bytes},
                                         {"files", done->files},
                                         {"notes", done->notes}};
    console->out << Document(json.dump(2) + "\n", options.output);
    return kDone;
  }
  console->out << out << ": the weights after step " << done->step << ", "
               << HumanBytes(done->bytes) << ": " << absl::StrJoin(done->files, ", ") << "\n";
  for (const std::string& note : done->notes) console->err << "note: " << note << "\n";
  return kDone;
}

// Adds to the error what the user can do instead if the job has ended.
absl::Status WithAdvice(const absl::Status& refused, client::MusterClient& client,
                        const std::string& job_id) {
  if (!absl::IsFailedPrecondition(refused)) return refused;
  const auto job = client.Get(job_id);
  if (!job.ok() || job->checkpoints().empty()) return refused;
  const v1::Checkpoint* newest = &job->checkpoints(0);
  for (const v1::Checkpoint& checkpoint : job->checkpoints()) {
    if (checkpoint.step() > newest->step()) newest = &checkpoint;
  }
  absl::Status advised(refused.code(),
                       absl::StrCat(refused.message(), "; `muster consolidate ", newest->path(),
                                    " --out DIR` takes its newest checkpoint"));
  refused.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    advised.SetPayload(type, payload);
  });
  return advised;
}

ExitCode FromJob(Console* console, const Options& options) {
  v1::ConsolidateRequest request;
  v1::ModelFolder& folder = *request.mutable_folder();
  folder.set_path(AbsolutePath(options.out));
  folder.set_dtype(ToWire(options.dtype));
  folder.set_max_shard_bytes(options.max_shard_bytes);
  folder.set_overwrite(options.overwrite);
  folder.set_hold(options.hold);
  return Steer(
      console, options,
      [&](auto& client, const auto& job, const auto& steer) -> absl::StatusOr<v1::Operation> {
        request.set_job_id(job);
        auto operation = client.Steer(&v1::ControlService::Stub::Consolidate, request, steer);
        if (operation.ok()) return operation;
        return WithAdvice(operation.status(), client, job);
      });
}

}  // namespace

void AddConsolidate(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand(
      "consolidate",
      "Write the weights to a folder that Hugging Face's from_pretrained reads: those of a running "
      "job after its current step, while training continues, or those of a checkpoint, for which "
      "no coordinator is needed");
  AddSteeringOptions(command, console, options.get());
  command->get_option("JOB")->description(
      "The job's id, or the directory of a checkpoint (a text with a '/')");
  command
      ->add_option("--out", options->out,
                   "The folder, which must not exist or be empty (see --overwrite)")
      ->required();
  const std::map<std::string, DType> dtypes = {
      {"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"float16", DType::kF16}};
  command
      ->add_option("--dtype", options->dtype,
                   "The type of the weights: float32 (the default), bfloat16 or float16")
      ->transform(CLI::CheckedTransformer(dtypes).description("float32|bfloat16|float16"));
  command
      ->add_option("--max-shard-size", options->max_shard_bytes,
                   "The largest size of a file, such as 500MB or 2GiB; a larger model becomes "
                   "several files and an index. The default is 5GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::PositiveNumber);
  command->add_flag("--overwrite", options->overwrite,
                    "Replace the folder if it contains nothing but a model");
  command->add_flag("--hold", options->hold,
                    "Let training wait until the folder is written, instead of making a copy of "
                    "the weights in memory");
  command->callback([=] {
    if (options->out.empty()) {
      *code = FailWith(console, kOutIsEmpty, kUsage);
      return;
    }
    *code = IsFolder(options->job) ? FromCheckpoint(console, *options) : FromJob(console, *options);
  });
}

}  // namespace muster::cli
