#include "client/cli/init/fine_tune.h"

#include <algorithm>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Fewer steps than this in an epoch teach little.
constexpr int64_t kLeastSteps = 20;
constexpr int64_t kMostMicroBatches = 8;
constexpr int64_t kEpochs = 3;
// A fault costs at most a tenth of the training, or this many steps.
constexpr int64_t kMostStepsBetweenCheckpoints = 100;

int64_t Samples(const FineTune& facts) {
  return std::max<int64_t>(1, facts.tokens / std::max<int64_t>(1, facts.context));
}

// Returns the micro-batches of a step.
int64_t Accumulate(const FineTune& facts) {
  return std::clamp<int64_t>(Samples(facts) / (facts.ranks * kLeastSteps), 1, kMostMicroBatches);
}

// Returns the steps from one checkpoint to the next.
int64_t StepsBetweenCheckpoints(const FineTune& facts) {
  const int64_t steps = kEpochs * Samples(facts) / (facts.ranks * Accumulate(facts));
  return std::clamp<int64_t>(steps / 10, 1, kMostStepsBetweenCheckpoints);
}

// A text in YAML.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

absl::StatusOr<int64_t> PositionsOf(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    if (json.is_object() && json.contains(key) && json[key].is_number_integer() &&
        json[key].get<int64_t>() > 0) {
      return json[key].get<int64_t>();
    }
  }
  return absl::InvalidArgumentError(
      "expected a JSON object with `max_position_embeddings` or `n_positions`");
}

std::string JobName(const std::string& model, const std::string& data) {
  std::string name;
  for (const std::string& path : {model, data}) {
    std::filesystem::path part = std::filesystem::path(path).lexically_normal();
    if (!part.has_filename()) part = part.parent_path();
    if (!name.empty()) name += '-';
    for (const char sign : part.stem().string()) {
      const char low = absl::ascii_tolower(static_cast<unsigned char>(sign));
      name += absl::ascii_isalnum(static_cast<unsigned char>(low)) ? low : '-';
    }
  }
  constexpr size_t kLongest = 40;
  name = name.substr(0, kLongest);
  const size_t begin = name.find_first_not_of('-'), end = name.find_last_not_of('-');
  return begin == std::string::npos ? "fine-tune" : name.substr(begin, end - begin + 1);
}

std::string FineTuneJob(const FineTune& facts) {
  const int64_t accumulate = Accumulate(facts);
  std::string job = absl::StrCat(
      "# Trains all weights of a model on ", facts.data, ". Made by `muster init fine-tune`.\n",
      "# Every setting: docs/reference/job-file.md.\n",  //
      "name: ", facts.name, "\n",                        //
      "# The number of processes; with GPUs, one for each.\n", "world_size: ", facts.ranks, "\n");
  if (facts.cuda) absl::StrAppend(&job, "device: cuda\nprecision: bfloat16\n");
  absl::StrAppend(
      &job, "# `context`: the tokens of a sample. Fewer need less memory.\n",  //
      "model: {hf: ", Quoted(facts.model), ", context: ", facts.context, "}\n",
      "data:\n",  //
      "  train: {documents: {path: ", Quoted(facts.train), "}}\n",
      "  validate: {documents: {path: ", Quoted(facts.validate), "}}\n",
      "# The samples of a step: world_size x per_rank x accumulate, here ",
      facts.ranks * accumulate, "; fewer in the last one.\n",  //
      "batch: {per_rank: 1, accumulate: ", accumulate, ", last: uneven}\n",
      "# The weights, gradients and optimizer state are shared by the ranks.\n",
      "strategy: {fsdp: {}}\n",  //
      "optimizer: {adamw: {lr: 1.0e-5}}\n",
      "# Before training and after each epoch: the loss on the held-out documents; after each "
      "epoch a\n# text of the model, too (the event SAMPLE).\n",
      "stages:\n  - validate: {}\n  - fit: {epochs: ", kEpochs,
      ", validate_every: 1, sample: {document: 0}}\n",
      "# After a fault the job goes on from its newest checkpoint, and with the same command after "
      "a kill\n# or a signal; after Ctrl-C, add --retry.\n",
      "checkpoint: {directory: checkpoints, every_steps: ", StepsBetweenCheckpoints(facts), "}\n",
      "# transformers opens the folder `tuned`.\n",  //
      "export: {path: tuned/model.safetensors}\n");
  return job;
}

}  // namespace muster::cli
