#include "worker/checkpoint/model_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/exports/signature.h"
#include "common/exports/target.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/modelfolder/folder.h"
#include "common/status/status.h"
#include "common/tokenizer/source.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

using modelfolder::FolderPlan;
using safetensors::DType;

// Returns the indices of the parameters in the order of the source model, then those of the buffers
// by name.
absl::StatusOr<std::vector<size_t>> InOrder(const State& state, const ModelRecords& records) {
  std::map<std::string, size_t> parameters;
  std::vector<size_t> buffers;
  for (size_t i = 0; i < state.items.size(); ++i) {
    if (state.items[i].slot == "param") {
      parameters[state.items[i].parameter] = i;
    } else {
      buffers.push_back(i);
    }
  }
  std::vector<size_t> order;
  for (const manifest::ParameterRecord& parameter : records.parameters) {
    const auto found = parameters.find(parameter.name);
    if (found != parameters.end()) order.push_back(found->second);
  }
  if (order.size() != parameters.size()) {
    return absl::InternalError(absl::StrCat("the model has ", parameters.size(),
                                            " parameters, and ", order.size(), " of them are in ",
                                            "the list of the source model"));
  }
  std::sort(buffers.begin(), buffers.end(), [&](size_t a, size_t b) {
    return state.items[a].parameter < state.items[b].parameter;
  });
  order.insert(order.end(), buffers.begin(), buffers.end());
  return order;
}

struct Planned {
  FolderPlan folder;
  std::vector<JointOutput::Place> places;  // by item
};

absl::StatusOr<Planned> PlanOf(const State& state, const ModelRecords& records,
                               const modelfolder::PlanOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<size_t> order, InOrder(state, records));
  std::vector<modelfolder::Tensor> tensors;
  for (const size_t i : order) {
    const StateItem& item = state.items[i];
    const auto dtype = safetensors::DTypeOf(DTypeName(item.type));
    tensors.push_back({item.parameter, item.shape, dtype.value_or(DType::kU8)});
  }
  Planned planned;
  ASSIGN_OR_RETURN(planned.folder, modelfolder::PlanFolder(tensors, options));
  planned.places.resize(state.items.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const modelfolder::Place& place = planned.folder.places[i];
    planned.places[order[i]] = {place.file, place.offset, place.dtype};
  }
  return planned;
}

// An output of files with these plans. Derived classes define the places of the files and the final
// name.
class WeightsOutput : public JointOutput {
 public:
  const std::vector<File>& files() const override { return files_; }
  const std::vector<Place>& places() const override { return planned_.places; }
  std::vector<Bytes> Rest(const std::vector<uint32_t>&) const override {
    std::vector<Bytes> rest;
    for (size_t i = 0; i < planned_.folder.files.size(); ++i) {
      rest.push_back({i, 0, planned_.folder.files[i].prefix});
    }
    return rest;
  }

 protected:
  explicit WeightsOutput(Planned planned) : planned_(std::move(planned)) {}

  const Planned planned_;
  std::vector<File> files_;
};

class FolderOutput : public WeightsOutput {
 public:
  FolderOutput(const ModelFolderOptions& options, Planned planned, const ModelRecords& records,
               ModelFolderContents* contents)
      : WeightsOutput(std::move(planned)),
        options_(options),
        config_(records.config),
        first_weights_(records.first_weights),
        tokenizer_(records.tokenizer),
        contents_(contents) {
    for (const modelfolder::PlannedFile& file : planned_.folder.files) {
      files_.push_back({files::JoinPath(options_.temporary, file.name), file.size});
    }
  }

  absl::Status CheckTarget() const override {
    return modelfolder::CheckTarget(options_.path, Replaces());
  }
  absl::Status MakeFolders() override {
    RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(options_.path)));
    if (mkdir(options_.temporary.c_str(), 0755) == 0) return absl::OkStatus();
    return files::ErrnoStatus(errno, "create", options_.temporary);
  }
  absl::Status GiveName(files::Disk& disk) override {
    ASSIGN_OR_RETURN(auto companions, modelfolder::WriteCompanions({.index = planned_.folder.index,
                                                                    .config = config_,
                                                                    .first_weights = first_weights_,
                                                                    .tokenizer = tokenizer_,
                                                                    .dtype = options_.dtype},
                                                                   options_.temporary, disk));
    exports::Sign(options_.temporary, options_.writer);
    RETURN_IF_ERROR(modelfolder::PlaceFolder(options_.temporary, options_.path, Replaces(), disk));
    for (const modelfolder::PlannedFile& file : planned_.folder.files) {
      contents_->files.push_back(file.name);
    }
    contents_->files.insert(contents_->files.end(), companions.files.begin(),
                            companions.files.end());
    contents_->bytes = companions.bytes;
    contents_->notes = std::move(companions.notes);
    return absl::OkStatus();
  }
  void Discard() override { modelfolder::RemoveFolder(options_.temporary).IgnoreError(); }

 private:
  // True if an existing folder of a model is replaced.
  bool Replaces() const {
    return options_.overwrite || exports::IsSignedBy(options_.path, options_.writer);
  }

  const ModelFolderOptions options_;
  const std::string config_;
  const std::string first_weights_;
  const tokenizer::Source tokenizer_;
  ModelFolderContents* const contents_;
};

class FileOutput : public WeightsOutput {
 public:
  FileOutput(const WeightsFileOptions& options, Planned planned, const ModelRecords& records)
      : WeightsOutput(std::move(planned)), options_(options), config_(records.config) {
    files_.push_back({options_.temporary, planned_.folder.files[0].size});
  }

  absl::Status CheckTarget() const override {
    RETURN_IF_ERROR(exports::CheckTarget(options_.path, options_.job_name, options_.overwrite));
    return exports::CheckConfig(options_.path, config_, options_.job_name, options_.overwrite);
  }
  absl::Status MakeFolders() override {
    return files::CreateDirectories(files::ParentDirectory(options_.path));
  }
  absl::Status GiveName(files::Disk& disk) override {
    RETURN_IF_ERROR(files::RenameDurably(options_.temporary, options_.path, disk));
    if (config_.empty()) return absl::OkStatus();
    return files::WriteAtomically(
        files::JoinPath(files::ParentDirectory(options_.path), modelfolder::kConfigName), config_,
        disk);
  }
  void Discard() override { unlink(options_.temporary.c_str()); }

 private:
  const WeightsFileOptions options_;
  const std::string config_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JointOutput>> ModelFolderOutput(const ModelFolderOptions& options,
                                                               const State& state,
                                                               const ModelRecords& records,
                                                               ModelFolderContents* contents) {
  ASSIGN_OR_RETURN(Planned planned, PlanOf(state, records,
                                           {.dtype = options.dtype,
                                            .max_shard_bytes = options.max_shard_bytes,
                                            .metadata = options.metadata}));
  return std::unique_ptr<JointOutput>(
      new FolderOutput(options, std::move(planned), records, contents));
}

absl::StatusOr<std::unique_ptr<JointOutput>> WeightsFileOutput(const WeightsFileOptions& options,
                                                               const State& state,
                                                               const ModelRecords& records) {
  ASSIGN_OR_RETURN(Planned planned, PlanOf(state, records,
                                           {.dtype = DType::kF32,
                                            .max_shard_bytes = std::numeric_limits<uint64_t>::max(),
                                            .metadata = options.metadata}));
  return std::unique_ptr<JointOutput>(new FileOutput(options, std::move(planned), records));
}

}  // namespace muster::checkpoint
