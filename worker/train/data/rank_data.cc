#include "worker/train/data/rank_data.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"
#include "worker/checkpoint/exchange.h"
#include "worker/data/npy_dataset.h"
#include "worker/data/part.h"
#include "worker/data/safetensors_dataset.h"
#include "worker/data/tokens/documents_dataset.h"
#include "worker/data/tokens/mixture.h"
#include "worker/device/host_values.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/ranks/guarded.h"

namespace muster::train {
namespace {

using OpenedDataset = absl::StatusOr<std::unique_ptr<data::Dataset>>;

// Returns the files of `config` that this rank reads.
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

using Paths = std::vector<std::string>;

// Opens each part of a mixture, or, if there is none, these paths.
template <typename OpenPaths>
OpenedDataset Mixed(const std::vector<MixturePart>& mixture, const Paths& paths,
                    const models::InputSpec& input, const OpenPaths& open) {
  if (mixture.empty()) return open(paths);
  std::vector<std::unique_ptr<data::Dataset>> parts;
  std::vector<double> weights;
  for (const MixturePart& part : mixture) {
    ASSIGN_OR_RETURN(auto opened, open(part.paths));
    parts.push_back(std::move(opened));
    weights.push_back(part.weight);
  }
  return data::MakeMixture(std::move(parts), weights, input);
}

OpenedDataset Open(const DataConfig& config, const models::InputSpec& input,
                   data::Emptiness emptiness, data::Labels labels,
                   const comm::Communicator& communicator) {
  return std::visit(
      [&](const auto& files) -> OpenedDataset {
        using Files = std::decay_t<decltype(files)>;
        if constexpr (std::is_same_v<Files, data::IdxOptions>) {
          return data::OpenIdx(files, input, labels);
        } else if constexpr (std::is_same_v<Files, data::NpyOptions>) {
          return data::OpenNpy(files, input, labels);
        } else if constexpr (std::is_same_v<Files, DocumentFiles>) {
          return Mixed(files.mixture, files.paths, input, [&](const Paths& some) {
            return data::OpenDocuments(some, files.packed, input);
          });
        } else {
          ASSIGN_OR_RETURN(const auto paths, PathsOf(files, communicator));
          const auto empty = files.per_rank ? emptiness : data::Emptiness::kRefused;
          if constexpr (std::is_same_v<Files, TokenFiles>) {
            return Mixed(files.mixture, paths, input, [&](const Paths& some) {
              return data::OpenTokens(some, files.type, input, empty);
            });
          } else {
            return data::OpenSafetensors(paths, input, empty, labels, files.names);
          }
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

std::vector<int64_t> InputOf(const v1::ModelSpec& model) {
  const auto& shape = model.has_convnet() ? model.convnet().inputs() : model.torchscript().inputs();
  return {shape.begin(), shape.end()};
}

// Returns the products of the first dimension, of the first two, ...: the places to cut a row.
std::set<int64_t> Cuts(const std::vector<int64_t>& shape) {
  std::set<int64_t> cuts;
  int64_t numbers = 1;
  for (const int64_t dimension : shape) cuts.insert(numbers *= dimension);
  cuts.erase(1);
  return cuts;
}

std::string Shape(const std::vector<int64_t>& row) {
  return absl::StrCat("[N, ", absl::StrJoin(row, ", "), "]");
}

// Returns the first set with a known tokenizer; if there is none, a set without a known tokenizer.
absl::StatusOr<TokenizedSet> FirstKnown(const std::vector<TokenizedSet>& sets) {
  TokenizedSet first;
  for (const TokenizedSet& set : sets) {
    RETURN_IF_ERROR(
        tokenizer::CheckSameTokenizer(first.tokenizer, first.name, set.tokenizer, set.name));
    if (!first.tokenizer.known()) first = set;
  }
  return first;
}

// The reason of a note that says how documents and mixtures are arranged.
constexpr char kArrangedReason[] = "DATA_ARRANGED";

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

absl::Status CheckRowShape(const v1::ModelSpec& model, const std::vector<int64_t>& row) {
  const std::vector<int64_t> input = InputOf(model);
  const std::set<int64_t> expected = Cuts(input), found = Cuts(row);
  const auto within = [](const std::set<int64_t>& a, const std::set<int64_t>& b) {
    return std::includes(b.begin(), b.end(), a.begin(), a.end());
  };
  if (input.empty() || within(found, expected) || within(expected, found)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("inputs: expected ", Shape(input), " as the model takes, found ", Shape(row),
                   ", the same numbers in another order; write the data in the model's order"));
}

absl::StatusOr<tokenizer::Source> TokenizerOfJob(const std::vector<TokenizedSet>& sets,
                                                 comm::Communicator& communicator) {
  ASSIGN_OR_RETURN(const TokenizedSet mine, FirstKnown(sets));
  const std::string text =
      mine.tokenizer.known()
          ? absl::StrJoin({mine.name, mine.tokenizer.hash, mine.tokenizer.path}, "\n")
          : "";
  ASSIGN_OR_RETURN(const auto texts,
                   checkpoint::GatherTexts(communicator, text, "the tokenizers", 0));
  std::vector<TokenizedSet> of_ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    const std::vector<std::string> parts = absl::StrSplit(texts[rank], absl::MaxSplits('\n', 2));
    of_ranks.push_back({absl::StrCat(parts[0], " of rank ", rank), {parts[2], parts[1]}});
  }
  ASSIGN_OR_RETURN(TokenizedSet all, FirstKnown(of_ranks));
  return std::move(all.tokenizer);
}

std::vector<Notice> DataNotices(const std::string& name, const std::vector<data::Note>& notes,
                                int64_t step) {
  constexpr std::pair<data::Note::Kind, const char*> kReasons[] = {
      {data::Note::Kind::kCast, "DATA_CONVERTED"},
      {data::Note::Kind::kDoubt, "DATA_DOUBTFUL"},
      {data::Note::Kind::kArranged, kArrangedReason}};
  std::vector<Notice> notices;
  for (const auto& [kind, reason] : kReasons) {
    Problems texts;
    for (const data::Note& note : notes) {
      if (note.kind == kind) texts.Add(note.text);
    }
    if (texts.count() > 0)
      notices.push_back({reason, absl::StrCat(name, ": ", texts.Text()), step});
  }
  return notices;
}

void ReportNotes(const std::string& name, const RankData& data, int64_t rank, int64_t step,
                 const SessionReports& reports) {
  const bool own = !data.own_sizes.empty();
  if (!own && !reports.leader()) return;
  const std::string where = own ? absl::StrCat("rank ", rank, ": ", name) : name;
  for (const Notice& notice : DataNotices(where, data.dataset->notes(), step)) {
    const bool information = notice.reason == kArrangedReason;
    spdlog::log(information ? spdlog::level::info : spdlog::level::warn, "{}", notice.message);
    reports.ReportOfRank(notice);
  }
}

}  // namespace muster::train
