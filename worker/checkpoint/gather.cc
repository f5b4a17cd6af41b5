#include "worker/checkpoint/gather.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exports/signature.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

using optimizerfile::OptimizerFile;

// The file, as all ranks write it together.
class OptimizerOutput : public JointOutput {
 public:
  OptimizerOutput(GatherOptions options, OptimizerFile file, size_t items)
      : options_(std::move(options)),
        file_(std::move(file)),
        files_({{options_.temporary, file_.size(), options_.for_owner ? 0600u : 0644u}}) {
    for (size_t i = 0; i < items; ++i) places_.push_back({.offset = file_.offset(i)});
  }

  const std::vector<File>& files() const override { return files_; }
  const std::vector<Place>& places() const override { return places_; }

  absl::Status CheckTarget() const override {
    struct stat found = {};
    if (lstat(options_.path.c_str(), &found) != 0) {
      return errno == ENOENT ? absl::OkStatus()
                             : files::ErrnoStatus(errno, "look at", options_.path);
    }
    if (!S_ISREG(found.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(options_.path, ": is no regular file"));
    }
    if (options_.overwrite || exports::IsSignedBy(options_.path, options_.writer)) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(absl::StrCat(
        options_.path, ": there is such a file; give another name, or allow to overwrite it"));
  }
  absl::Status MakeFolders() override {
    return files::CreateDirectories(files::ParentDirectory(options_.path));
  }
  bool needs_crcs() const override { return true; }
  std::vector<Bytes> Rest(const std::vector<uint32_t>& crcs) const override {
    std::vector<Bytes> rest;
    for (auto& [offset, bytes] : file_.Fragments(crcs)) rest.push_back({0, offset, bytes});
    return rest;
  }
  absl::Status GiveName(files::Disk& disk) override {
    exports::Sign(options_.temporary, options_.writer);
    return files::RenameDurably(options_.temporary, options_.path, disk);
  }
  void Discard() override { unlink(options_.temporary.c_str()); }

 private:
  const GatherOptions options_;
  const OptimizerFile file_;
  const std::vector<File> files_;
  std::vector<Place> places_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JointOutput>> OptimizerStateOutput(const GatherOptions& options,
                                                                  const State& state,
                                                                  const ModelRecords& records) {
  optimizerfile::Contents contents{.optimizer = records.optimizer,
                                   .parameters = records.parameters,
                                   .items = {},
                                   .schedule_factor = options.schedule_factor};
  for (const StateItem& item : state.items) {
    if (item.type != at::kFloat) {
      return absl::InvalidArgumentError(
          absl::StrCat("state ", Name(item), ": expected Float, found ", at::toString(item.type)));
    }
    contents.items.push_back({item.slot, item.parameter, item.shape});
  }
  ASSIGN_OR_RETURN(OptimizerFile file, OptimizerFile::Plan(contents, options.format, options.key));
  return std::make_unique<OptimizerOutput>(options, std::move(file), contents.items.size());
}

}  // namespace muster::checkpoint
