#include "worker/train/data/rank_data.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/npy_dataset.h"
#include "worker/data/part.h"
#include "worker/data/safetensors_dataset.h"
#include "worker/device/host_values.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/ranks/guarded.h"

namespace muster::train {
namespace {

using OpenedDataset = absl::StatusOr<std::unique_ptr<data::Dataset>>;

OpenedDataset OpenPaths(const TokenFiles& files, const std::vector<std::string>& paths,
                        const models::InputSpec& input, data::Emptiness emptiness, data::Labels) {
  return data::OpenTokens(paths, files.type, input, emptiness);
}
OpenedDataset OpenPaths(const RowFiles&, const std::vector<std::string>& paths,
                        const models::InputSpec& input, data::Emptiness emptiness,
                        data::Labels labels) {
  return data::OpenSafetensors(paths, input, emptiness, labels);
}

// The files of `config` that this rank reads.
template <typename Files>
absl::StatusOr<std::vector<std::string>> PathsOf(const Files& files,
                                                 const comm::Communicator& communicator) {
  if (!files.per_rank) return files.paths;
  if (static_cast<int>(files.paths.size()) != communicator.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("per_rank: expected a file for each of ",
                                                   communicator.world_size(), " ranks, found ",
                                                   files.paths.size()));
  }
  return std::vector<std::string>{files.paths[communicator.rank()]};
}

bool IsPerRank(const DataConfig& config) {
  return std::visit(
      [](const auto& files) {
        if constexpr (requires { files.per_rank; }) return files.per_rank;
        return false;
      },
      config);
}

OpenedDataset Open(const DataConfig& config, const models::InputSpec& input,
                   data::Emptiness emptiness, data::Labels labels,
                   const comm::Communicator& communicator) {
  return std::visit(
      [&](const auto& files) -> OpenedDataset {
        using Files = std::decay_t<decltype(files)>;
        if constexpr (std::is_same_v<Files, data::IdxOptions>) {
          return data::OpenIdx(files, input, labels);
        } else if constexpr (std::is_same_v<Files, NpyFiles>) {
          return data::OpenNpy(files.inputs, files.labels, input, labels);
        } else {
          ASSIGN_OR_RETURN(const auto paths, PathsOf(files, communicator));
          return OpenPaths(files, paths, input,
                           files.per_rank ? emptiness : data::Emptiness::kRefused, labels);
        }
      },
      config);
}

OpenedDataset OpenAndCheck(const DataConfig& config, const models::InputSpec& input,
                           data::Emptiness emptiness, data::Labels labels,
                           const comm::Communicator& communicator) {
  ASSIGN_OR_RETURN(auto dataset, Open(config, input, emptiness, labels, communicator));
  RETURN_IF_ERROR(dataset->Check(
      IsPerRank(config)
          ? data::Part{}
          : data::Part{.index = communicator.rank(), .count = communicator.world_size()}));
  return dataset;
}

absl::StatusOr<std::vector<int64_t>> GatherSizes(int64_t own, comm::Communicator& communicator) {
  const at::Tensor mine = device::HostTensor(std::array<int64_t, 1>{own});
  const at::Tensor all = at::empty({communicator.world_size()}, at::kLong);
  RETURN_IF_ERROR(communicator.AllGather(all, mine, {.what = "sizes of the ranks' files"})->Wait());
  const auto sizes = device::HostValues<int64_t>(all);
  return std::vector<int64_t>(sizes.begin(), sizes.end());
}

}  // namespace

std::optional<data::OwnFile> RankData::Own(int64_t rank) const {
  if (own_sizes.empty()) return std::nullopt;
  return data::OwnFile{.rank = rank,
                       .shortest = *std::min_element(own_sizes.begin(), own_sizes.end()),
                       .longest = *std::max_element(own_sizes.begin(), own_sizes.end())};
}

data::EvaluationPlan RankData::Evaluation(int64_t world_size, int64_t per_rank) const {
  return {.size = dataset->size(),
          .world_size = world_size,
          .per_rank = per_rank,
          .own_sizes = own_sizes};
}

absl::StatusOr<RankData> OpenRankData(const std::string& name, const DataConfig& config,
                                      const models::InputSpec& input, data::Emptiness emptiness,
                                      comm::Communicator& communicator, data::Labels labels) {
  const auto open = [&] { return OpenAndCheck(config, input, emptiness, labels, communicator); };
  auto dataset = Guarded("opening", open);
  RETURN_IF_ERROR(AgreedStatus(Annotate(dataset.status(), name), "what the ranks found in the data",
                               communicator));
  RankData data{.dataset = *std::move(dataset)};
  if (IsPerRank(config)) {
    ASSIGN_OR_RETURN(data.own_sizes, GatherSizes(data.dataset->size(), communicator));
    if (data.Own(0)->longest == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".per_rank: expected at least one sample in the ",
                       data.own_sizes.size(), " files, found none"));
    }
  }
  return data;
}

}  // namespace muster::train
