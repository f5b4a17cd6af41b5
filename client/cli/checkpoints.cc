#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/table.h"
#include "common/manifest/manifest.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

using Manifest = manifest::Manifest;

// Per slot ("parameter", "exp_avg", ...): how many tensors and elements.
struct SlotSize {
  std::set<std::string> tensors;
  int64_t elements = 0;
};

std::map<std::string, SlotSize> Slots(const Manifest& manifest) {
  std::map<std::string, SlotSize> slots;
  for (const manifest::Piece& piece : manifest.pieces) {
    SlotSize& slot = slots[piece.slot];
    slot.tensors.insert(piece.parameter);
    slot.elements += piece.end - piece.begin;
  }
  return slots;
}

uint64_t Bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const manifest::FileRecord& file : manifest.files) bytes += file.size;
  return bytes;
}

std::string ToText(const Manifest& manifest) {
  Table facts;
  facts.Add({"job", manifest.job});
  facts.Add({"step", absl::StrCat(manifest.step)});
  facts.Add({"generation", absl::StrCat(manifest.generation)});
  facts.Add({"last command", absl::StrCat(manifest.last_command)});
  facts.Add(
      {"data position", absl::StrCat("epoch ", manifest.epoch, ", sample ", manifest.cursor)});
  facts.Add({"model", manifest.model_kind});
  facts.Add({"strategy", absl::StrCat(manifest.strategy, ", ", manifest.world_size, " ranks")});
  Table slots({"SLOT", "TENSORS", "ELEMENTS"});
  for (const auto& [name, slot] : Slots(manifest)) {
    slots.Add({name, absl::StrCat(slot.tensors.size()), absl::StrCat(slot.elements)});
  }
  Table files({"FILE", "BYTES", "XXH3-128"});
  for (const manifest::FileRecord& file : manifest.files) {
    files.Add({file.name, absl::StrCat(file.size), file.hash});
  }
  return absl::StrCat(facts.Text(), "\n", slots.Text(), "\n", files.Text());
}

std::string ToJson(const Manifest& manifest) {
  nlohmann::ordered_json json = {
      {"job", manifest.job},
      {"step", manifest.step},
      {"generation", manifest.generation},
      {"last_command", manifest.last_command},
      {"epoch", manifest.epoch},
      {"cursor", manifest.cursor},
      {"world_size", manifest.world_size},
      {"strategy", manifest.strategy},
      {"model", manifest.model_kind},
  };
  json["slots"] = nlohmann::ordered_json::array();
  for (const auto& [name, slot] : Slots(manifest)) {
    json["slots"].push_back(
        {{"slot", name}, {"tensors", slot.tensors.size()}, {"elements", slot.elements}});
  }
  json["files"] = nlohmann::ordered_json::array();
  for (const manifest::FileRecord& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"size", file.size}, {"hash", file.hash}});
  }
  return json.dump(2) + "\n";
}

ExitCode Inspect(Console* console, const CommonOptions& options, const std::string& directory) {
  const auto manifest = manifest::Read(directory);
  if (!manifest.ok()) return FailWith(console, Message(manifest.status()));
  console->out << (IsDocument(options.output) ? Document(ToJson(*manifest), options.output)
                                              : ToText(*manifest));
  return kDone;
}

ExitCode Verify(Console* console, const CommonOptions& options, const std::string& directory) {
  const auto manifest = manifest::Verify(directory);
  if (!manifest.ok()) return FailWith(console, Message(manifest.status()));
  if (IsDocument(options.output)) {
    console->out << Document(ToJson(*manifest), options.output);
  } else {
    console->out << directory << ": good: step " << manifest->step << ", " << manifest->files.size()
                 << " files, " << absl::StrFormat("%.1f MiB", Bytes(*manifest) / double{1 << 20})
                 << "\n";
  }
  return kDone;
}

std::string Says(const v1::Checkpoint& checkpoint) {
  if (!checkpoint.bad_reason().empty()) return absl::StrCat("damaged: ", checkpoint.bad_reason());
  switch (checkpoint.origin()) {
    case v1::Checkpoint::ADOPTED:
      return "found in the folder, counts";
    case v1::Checkpoint::FOUND:
      return absl::StrCat("kept, does not count: ", checkpoint.origin_reason());
    default:
      return "counts";
  }
}

std::string ListTable(const v1::Job& job, absl::Time now) {
  Table table({"CHECKPOINT", "GENERATION", "KNOWN SINCE", "PATH", "STATUS"});
  for (const auto* list : {&job.checkpoints(), &job.found_checkpoints()}) {
    for (const v1::Checkpoint& checkpoint : *list) {
      table.Add({absl::StrCat("step ", checkpoint.step()), absl::StrCat(checkpoint.generation()),
                 Ago(checkpoint.create_time(), now), checkpoint.path(), Says(checkpoint)});
    }
  }
  return table.Text();
}

ExitCode List(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto job = (*client)->Get(job_id);
  if (!job.ok()) return Fail(console, job.status());
  if (IsDocument(options.output)) {
    // Only the fields of the job's message about its checkpoints.
    v1::Job checkpoints;
    checkpoints.set_id(job->id());
    *checkpoints.mutable_checkpoints() = job->checkpoints();
    *checkpoints.mutable_found_checkpoints() = job->found_checkpoints();
    console->out << Document(checkpoints, options.output);
  } else if (job->checkpoints().empty() && job->found_checkpoints().empty()) {
    console->err << "job '" << job_id << "' has no checkpoints\n";
  } else {
    console->out << ListTable(*job, absl::Now());
  }
  return kDone;
}

void AddCheckpointsList(CLI::App* group, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      group->add_subcommand("list",
                            "List the checkpoints of a job that the coordinator knows, "
                            "including those that were found and do not count");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = List(console, *options, options->job); });
}

using Action = ExitCode (*)(Console*, const CommonOptions&, const std::string&);

void AddAction(CLI::App* group, const std::string& name, const std::string& help, Action action,
               Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string directory;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = group->add_subcommand(name, help);
  command->add_option("DIR", options->directory, "A checkpoint's directory (step-...)")->required();
  AddOutputOption(command, options.get());
  command->callback([=] { *code = action(console, *options, options->directory); });
}

}  // namespace

void AddCheckpoints(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group = app->add_subcommand(
      "checkpoints", "Inspect checkpoints without a coordinator, or list those of a job");
  group->require_subcommand(1);
  AddCheckpointsList(group, console, code);
  AddAction(group, "inspect", "Show what a checkpoint holds", Inspect, console, code);
  AddAction(group, "verify",
            "Read all of a checkpoint and check its sizes, its hashes and that it is complete",
            Verify, console, code);
}

}  // namespace muster::cli
