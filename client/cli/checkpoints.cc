#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/checkpoints/compare.h"
#include "client/checkpoints/reshard.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/output.h"
#include "common/manifest/manifest.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

using Manifest = manifest::Manifest;

// The numbers of tensors and elements of a slot ("parameter", "exp_avg", ...).
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

// Returns why the checkpoint in a folder cannot be read: there is no checkpoint, or what `status`
// says.
std::string Unreadable(const std::string& directory, const absl::Status& status) {
  const std::filesystem::path file = std::filesystem::path(directory) / manifest::kFileName;
  std::error_code error;
  if (absl::IsNotFound(status) && !std::filesystem::exists(file, error)) {
    return absl::StrCat(directory, " is not a checkpoint: there is no file ", file.string(),
                        "; give a folder such as step-100-g1");
  }
  return Message(status);
}

ExitCode Inspect(Console* console, const CommonOptions& options, const std::string& directory) {
  const auto manifest = manifest::Read(directory);
  if (!manifest.ok()) return FailWith(console, Unreadable(directory, manifest.status()));
  console->out << (IsDocument(options.output) ? Document(ToJson(*manifest), options.output)
                                              : ToText(*manifest));
  return kDone;
}

ExitCode Verify(Console* console, const CommonOptions& options, const std::string& directory) {
  const auto manifest = manifest::Verify(directory);
  if (!manifest.ok()) return FailWith(console, Unreadable(directory, manifest.status()));
  if (IsDocument(options.output)) {
    console->out << Document(ToJson(*manifest), options.output);
  } else {
    console->out << directory << ": good: step " << manifest->step << ", " << manifest->files.size()
                 << " files, " << absl::StrFormat("%.1f MiB", Bytes(*manifest) / double{1 << 20})
                 << "\n";
  }
  return kDone;
}

std::string Says(const v1::Checkpoint& checkpoint, bool best) {
  if (!checkpoint.bad_reason().empty()) return absl::StrCat("damaged: ", checkpoint.bad_reason());
  switch (checkpoint.origin()) {
    case v1::Checkpoint::ADOPTED:
      return absl::StrCat("found in the folder, counts", best ? ", the best one" : "");
    case v1::Checkpoint::FOUND:
      return absl::StrCat("kept, does not count: ", checkpoint.origin_reason());
    default:
      return best ? "counts, the best one" : "counts";
  }
}

std::string ListTable(const v1::Job& job, absl::Time now) {
  Table table({"CHECKPOINT", "GENERATION", "KNOWN SINCE", "PATH", "STATUS"});
  const std::string best = BestCheckpoint(job);
  for (const auto* list : {&job.checkpoints(), &job.found_checkpoints()}) {
    for (const v1::Checkpoint& checkpoint : *list) {
      table.Add({absl::StrCat("step ", checkpoint.step()), absl::StrCat(checkpoint.generation()),
                 Ago(checkpoint.create_time(), now), checkpoint.path(),
                 Says(checkpoint, checkpoint.path() == best)});
    }
  }
  return table.Text();
}

absl::StatusOr<ExitCode> List(Console* console, client::MusterClient& client,
                              const JobOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(options.job));
  if (IsDocument(options.output)) {
    // A message with only those fields of the job that are about its checkpoints.
    v1::Job checkpoints;
    checkpoints.set_id(job.id());
    *checkpoints.mutable_checkpoints() = job.checkpoints();
    *checkpoints.mutable_found_checkpoints() = job.found_checkpoints();
    console->out << Document(checkpoints, options.output);
  } else if (job.checkpoints().empty() && job.found_checkpoints().empty()) {
    console->err << "job '" << options.job << "' has no checkpoints\n";
  } else {
    console->out << ListTable(job, absl::Now());
  }
  return kDone;
}

void AddCheckpointsList(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command =
      group->add_subcommand("list",
                            "List the checkpoints of a job that the coordinator knows, "
                            "including those that were found and do not count");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, List); });
}

ExitCode Reshard(Console* console, const CommonOptions& options, const std::string& directory,
                 const std::string& out, int files) {
  if (out.empty()) return FailWith(console, kOutIsEmpty, kUsage);
  const auto manifest = checkpoints::Reshard(directory, AbsolutePath(out), files);
  if (!manifest.ok()) return FailWith(console, Message(manifest.status()));
  if (IsDocument(options.output)) {
    console->out << Document(ToJson(*manifest), options.output);
  } else {
    console->out << out << ": step " << manifest->step << ", " << manifest->files.size()
                 << " files, " << HumanBytes(Bytes(*manifest)) << "\n";
  }
  return kDone;
}

using checkpoints::Comparison;
using checkpoints::FactDifference;

// The number of tensors in a table; -o json has all.
constexpr size_t kShownTensors = 20;

void AddFacts(const char* title, const std::vector<FactDifference>& facts, std::string* text) {
  if (facts.empty()) return;
  const auto shortened = [](const std::string& fact) {
    constexpr size_t kShown = 60;
    return fact.size() <= kShown ? fact : absl::StrCat(fact.substr(0, kShown), "...");
  };
  Table table({title, "A", "B"});
  for (const FactDifference& fact : facts) {
    table.Add({fact.name, shortened(fact.a), shortened(fact.b)});
  }
  absl::StrAppend(text, table.Text(), "\n");
}

std::string ToText(const Comparison& comparison) {
  std::string text;
  AddFacts("TRAINING", comparison.facts, &text);
  AddFacts("WRITTEN BY", comparison.origin, &text);
  AddFacts("SHAPE", comparison.shapes, &text);
  for (const auto& [where, names] :
       {std::pair("A", &comparison.only_in_a), std::pair("B", &comparison.only_in_b)}) {
    if (names->empty()) continue;
    Problems shown;
    for (const std::string& name : *names) shown.Add(name);
    absl::StrAppend(&text, "only in ", where, ": ", shown.Text(), "\n\n");
  }
  if (!comparison.values.empty()) {
    Table table({"TENSOR", "ELEMENTS", "DIFFERENT", "LARGEST DIFFERENCE"});
    for (size_t i = 0; i < std::min(kShownTensors, comparison.values.size()); ++i) {
      const auto& value = comparison.values[i];
      table.Add({value.name, absl::StrCat(value.elements), absl::StrCat(value.different),
                 absl::StrCat(value.largest)});
    }
    absl::StrAppend(&text, table.Text());
    if (comparison.values.size() > kShownTensors) {
      absl::StrAppend(&text, "and ", comparison.values.size() - kShownTensors,
                      " more tensors (-o json has all)\n");
    }
    absl::StrAppend(&text, "\n");
  }
  return absl::StrCat(text, comparison.equal_tensors, " tensors are equal, ",
                      comparison.values.size(), " have different values\n");
}

std::string ToJson(const Comparison& comparison) {
  const auto list = [](const std::vector<FactDifference>& facts) {
    auto json = nlohmann::ordered_json::array();
    for (const FactDifference& fact : facts) {
      json.push_back({{"name", fact.name}, {"a", fact.a}, {"b", fact.b}});
    }
    return json;
  };
  nlohmann::ordered_json json = {{"same", comparison.same()},
                                 {"training", list(comparison.facts)},
                                 {"written_by", list(comparison.origin)},
                                 {"only_in_a", comparison.only_in_a},
                                 {"only_in_b", comparison.only_in_b},
                                 {"shapes", list(comparison.shapes)},
                                 {"equal_tensors", comparison.equal_tensors}};
  json["values"] = nlohmann::ordered_json::array();
  for (const auto& value : comparison.values) {
    nlohmann::ordered_json item = {{"tensor", value.name},
                                   {"elements", value.elements},
                                   {"different", value.different},
                                   {"largest", value.largest}};
    // JSON has no NaN.
    if (!std::isfinite(value.largest)) item["largest"] = absl::StrCat(value.largest);
    json["values"].push_back(std::move(item));
  }
  return json.dump(2) + "\n";
}

// Returns 1 if the checkpoints differ, as `diff` does.
ExitCode Diff(Console* console, const CommonOptions& options, const std::string& a,
              const std::string& b) {
  const auto comparison = checkpoints::Compare(a, b);
  if (!comparison.ok()) return FailWith(console, Message(comparison.status()));
  console->out << (IsDocument(options.output) ? Document(ToJson(*comparison), options.output)
                                              : ToText(*comparison));
  return comparison->same() ? kDone : kOtherError;
}

void AddReshard(CLI::App* group, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string directory;
    std::string out;
    int files = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = group->add_subcommand(
      "reshard",
      "Write a checkpoint anew with another number of files, in the newest version of the format "
      "(a job of any number of ranks reads any number of files)");
  command->add_option("DIR", options->directory, "A checkpoint's directory (step-...)")->required();
  command->add_option("--out", options->out, "The new directory, which must not exist or be empty")
      ->required();
  command->add_option("--files", options->files, "The number of files (the default is 1)")
      ->check(CLI::Range(1, 65536));
  AddOutputOption(command, options.get());
  command->callback([=] {
    *code = Reshard(console, *options, options->directory, options->out, options->files);
  });
}

void AddDiff(CLI::App* group, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string a;
    std::string b;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = group->add_subcommand(
      "diff",
      "Show what differs between two checkpoints: settings, tensors, values. The exit code is 1 if "
      "training would not continue from both in the same way");
  command->add_option("A", options->a, "A checkpoint's directory")->required();
  command->add_option("B", options->b, "Another one")->required();
  AddOutputOption(command, options.get());
  command->callback([=] { *code = Diff(console, *options, options->a, options->b); });
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
  AddReshard(group, console, code);
  AddDiff(group, console, code);
}

}  // namespace muster::cli
