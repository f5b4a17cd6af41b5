// muster-generate: prints new tokens of prompts for given weights. The parity tests use it.
#include <iostream>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/load_weights.h"
#include "worker/comm/local/local_group.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/evaluate/generate.h"

namespace muster {
namespace {

struct Flags {
  std::string model = "gpt2";
  std::string options = "{}";
  std::string weights;
  std::string request;
  std::string out;
};

// Reads {"prompts": [[id, ...], ...], "max_tokens": N, "temperature": T, "top_k": K, "seed": S}.
// The last three keys may be absent.
absl::StatusOr<models::GenerationRequest> RequestOf(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("--request: not JSON");
  models::GenerationRequest request = {
      .prompts = json.at("prompts").get<std::vector<std::vector<int64_t>>>(),
      .max_tokens = json.at("max_tokens").get<int64_t>()};
  if (json.contains("temperature")) request.sampling.temperature = json["temperature"];
  if (json.contains("top_k")) request.sampling.top_k = json["top_k"];
  if (json.contains("seed")) request.sampling.seed = json["seed"];
  return request;
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(1);
  const auto options = nlohmann::json::parse(flags.options, nullptr, /*allow_exceptions=*/false);
  if (options.is_discarded()) return absl::InvalidArgumentError("--options: not JSON");
  ASSIGN_OR_RETURN(const auto request, RequestOf(flags.request));
  ASSIGN_OR_RETURN(const auto model, models::CreateFromJson(flags.model, options, /*seed=*/0));
  RETURN_IF_ERROR(checkpoint::LoadWeights({.path = flags.weights}, *model).status());
  const auto ranks = comm::LocalGroup::Create(1);
  models::ForwardContext context(models::Mode::kEvaluate, models::MakeGenerator(0));
  ASSIGN_OR_RETURN(const auto tokens, train::Generate(request, /*step=*/0, *model, context,
                                                      c10::Device(c10::kCPU), *ranks[0]));
  nlohmann::json completions = nlohmann::json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    completions.push_back({{"prompt", request.prompts[i]}, {"tokens", tokens[i]}});
  }
  return files::WriteAtomically(flags.out, nlohmann::json{{"completions", completions}}.dump());
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Flags flags;
  CLI::App app("Continues prompts, for parity tests");
  app.add_option("--model", flags.model, "kind of model");
  app.add_option("--options", flags.options, "its options as JSON");
  app.add_option("--weights", flags.weights, "safetensors file or index")->required();
  app.add_option("--request", flags.request, "prompts, max_tokens, ... as JSON")->required();
  app.add_option("--out", flags.out, "JSON file to write: the completions")->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = muster::Run(flags);
  if (!status.ok()) std::cerr << "muster-generate: " << status << "\n";
  return status.ok() ? 0 : 1;
}
