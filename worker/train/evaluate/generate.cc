#include "worker/train/evaluate/generate.h"

#include <algorithm>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

using Completions = std::vector<std::vector<int64_t>>;

// The same forwards as those of a batch of the request, whose result nobody needs.
models::GenerationRequest OnlyForOthers(const models::GenerationRequest& request) {
  return {.prompts = {{0}}, .max_tokens = request.max_tokens, .sampling = {}};
}

absl::Status CheckFinite(const models::GenerationRequest& request, const Completions& completions) {
  Problems problems;
  for (size_t i = 0; i < completions.size(); ++i) {
    const auto failed = std::find(completions[i].begin(), completions[i].end(), models::kNoToken);
    if (failed == completions[i].end()) continue;
    problems.Add(absl::StrCat("prompts[", i, "]: the logits of the token at position ",
                              request.prompts[i].size() + (failed - completions[i].begin()),
                              " are not finite"));
  }
  return problems.ToStatus(absl::StatusCode::kFailedPrecondition,
                           "generate: check the model's weights, and the precision it computes in");
}

}  // namespace

absl::StatusOr<Completions> Generate(const models::GenerationRequest& request, int64_t step,
                                     models::Model& model, models::ForwardContext& context,
                                     c10::Device device, comm::Communicator& communicator) {
  RETURN_IF_ERROR(models::CheckGeneration(request, model));
  const auto batches = models::BatchesOf(request, *model.key_values());
  const auto ranks = static_cast<size_t>(communicator.world_size());
  Completions completions(request.prompts.size(),
                          std::vector<int64_t>(static_cast<size_t>(request.max_tokens), 0));
  for (size_t first = 0; first < batches.size(); first += ranks) {
    const size_t mine = first + static_cast<size_t>(communicator.rank());
    if (mine < batches.size()) {
      auto made = models::GenerateBatch(request, batches[mine], model, context, device);
      std::move(made.begin(), made.end(),
                completions.begin() + static_cast<int64_t>(batches[mine].begin));
    } else if (context.collective()) {
      models::GenerateBatch(OnlyForOthers(request), {.begin = 0, .end = 1}, model, context, device);
    }
  }
  // Each token is on one rank, and 0 on the others.
  std::vector<int64_t> flat;
  for (const auto& tokens : completions) flat.insert(flat.end(), tokens.begin(), tokens.end());
  const at::Tensor all = device::HostTensor(flat);
  RETURN_IF_ERROR(communicator.AllReduceSum(all, {.what = "new tokens", .step = step})->Wait());
  auto token = device::HostValues<int64_t>(all).begin();
  for (auto& tokens : completions) {
    for (int64_t& place : tokens) place = *token++;
  }
  RETURN_IF_ERROR(CheckFinite(request, completions));
  return completions;
}

}  // namespace muster::train
