#include "worker/checkpoint/gather.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/layout/placement.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/shard.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

using layout::Range;
using optimizerfile::OptimizerFile;

// Elements [begin, end) of an item, which one rank writes.
struct Part {
  size_t item;
  int64_t begin;
  int64_t end;
};

// What is written, the same on all ranks.
struct Plan {
  std::optional<OptimizerFile> file;
  std::vector<std::vector<Part>> parts;  // by rank
};

absl::StatusOr<Plan> MakePlan(const GatherOptions& options, const State& state,
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
  Plan plan{.file = std::nullopt, .parts = {}};
  ASSIGN_OR_RETURN(plan.file, OptimizerFile::Plan(contents, options.format, options.key));
  for (const std::vector<Range>& ranges : Parts(state)) {
    std::vector<Part>& parts = plan.parts.emplace_back();
    for (const Range& range : ranges) {
      if (range.begin == range.end) continue;
      parts.push_back({static_cast<size_t>(range.parameter), range.begin, range.end});
    }
  }
  return plan;
}

// The file, open for writing. Threading: one thread.
class OutputFile {
 public:
  OutputFile(std::string path, files::Disk& disk) : path_(std::move(path)), disk_(disk) {}
  ~OutputFile() {
    if (fd_ >= 0) close(fd_);
  }

  // A new file of this size. Its space is taken at once, so that a full disk is found here.
  // `created`: a file is there, also after an error.
  absl::Status Create(uint64_t size, bool* created) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return files::ErrnoStatus(errno, "create", path_);
    *created = true;
    if (fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0) return absl::OkStatus();
    if (errno != EOPNOTSUPP) return files::ErrnoStatus(errno, "allocate space for", path_);
    if (ftruncate(fd_, static_cast<off_t>(size)) == 0) return absl::OkStatus();
    return files::ErrnoStatus(errno, "resize", path_);
  }

  // The file that rank 0 created.
  absl::Status Open(uint64_t size) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) {
      return Annotate(files::ErrnoStatus(errno, "open", path_),
                      "all ranks must see the folder of the file");
    }
    struct stat found = {};
    if (fstat(fd_, &found) != 0) return files::ErrnoStatus(errno, "read", path_);
    if (static_cast<uint64_t>(found.st_size) == size) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(path_, ": expected ", size, " bytes, found ", found.st_size));
  }

  absl::Status WriteAt(uint64_t offset, const void* data, size_t bytes) {
    if (lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) {
      return files::ErrnoStatus(errno, "seek in", path_);
    }
    return disk_.Write(fd_, data, bytes, path_);
  }

  absl::Status Sync() { return disk_.Sync(fd_, path_); }

 private:
  const std::string path_;
  files::Disk& disk_;
  int fd_ = -1;
};

// One gather on one rank.
class Gather {
 public:
  Gather(const GatherOptions& options, const State& state, comm::Communicator* communicator,
         files::Disk& disk)
      : options_(options),
        state_(state),
        communicator_(communicator),
        disk_(disk),
        output_(options.temporary, disk) {}
  // No other process uses the name.
  ~Gather() {
    if (created_ && !placed_) unlink(options_.temporary.c_str());
  }
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  absl::StatusOr<GatherOutcome> Run(const ModelRecords& records,
                                    const std::function<absl::Status()>& still_mine) {
    GatherOutcome outcome;
    ASSIGN_OR_RETURN(const auto begun, Share(Begin(records), "gather begun"));
    outcome.status = Combine(begun);
    if (outcome.status.ok()) {
      outcome.bytes = plan_.file->size();
      std::string crcs;
      ASSIGN_OR_RETURN(const auto written, Share(WriteParts(&crcs), "gather written"));
      outcome.status = Combine(written);
      ASSIGN_OR_RETURN(crcs_, GatherTexts(*communicator_, crcs, "gather checksums", options_.step));
    }
    absl::Status placed;
    if (leader() && outcome.status.ok()) {
      placed = Place(still_mine);
      placed_ = placed.ok();
    }
    if (created_ && !placed_) unlink(options_.temporary.c_str());
    ASSIGN_OR_RETURN(const auto told, Share(placed, "gather placed"));
    if (outcome.status.ok()) outcome.status = told[0].status();
    return outcome;
  }

 private:
  bool leader() const { return communicator_->rank() == 0; }

  absl::StatusOr<std::vector<PartResult>> Share(const absl::Status& mine, const char* what) {
    return Exchange(*communicator_, ToResult(mine), what, options_.step);
  }

  // Whether there may be a file of this name afterwards.
  absl::Status CheckTarget() const {
    struct stat found = {};
    if (lstat(options_.path.c_str(), &found) != 0) {
      return errno == ENOENT ? absl::OkStatus()
                             : files::ErrnoStatus(errno, "look at", options_.path);
    }
    if (!S_ISREG(found.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(options_.path, ": is no regular file"));
    }
    if (options_.overwrite) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        options_.path, ": there is such a file; give another name, or allow to overwrite it"));
  }

  absl::Status CheckNeeded() const {
    if (options_.cancelled == nullptr || !*options_.cancelled) return absl::OkStatus();
    return absl::CancelledError("cancelled before the file was complete");
  }

  absl::Status Begin(const ModelRecords& records) {
    RETURN_IF_ERROR(CheckWritable(state_, communicator_->rank(), communicator_->world_size()));
    ASSIGN_OR_RETURN(plan_, MakePlan(options_, state_, records));
    if (!leader()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckTarget());
    RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(options_.path)));
    return output_.Create(plan_.file->size(), &created_);
  }

  // `crcs`: of each of this rank's parts, four bytes each.
  absl::Status WriteParts(std::string* crcs) {
    if (!leader()) RETURN_IF_ERROR(output_.Open(plan_.file->size()));
    std::map<size_t, const HeldPiece*> held;
    for (const HeldPiece& piece : state_.held) held[piece.item] = &piece;
    for (const Part& part : plan_.parts[communicator_->rank()]) {
      ASSIGN_OR_RETURN(const uint32_t crc, WritePart(part, *held.at(part.item)));
      crcs->append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    }
    return output_.Sync();
  }

  absl::StatusOr<uint32_t> WritePart(const Part& part, const HeldPiece& piece) {
    constexpr int64_t kMost = files::kHashedBlock / sizeof(float);
    const at::Tensor flat = piece.tensor.detach().view({-1});
    uLong crc = crc32(0, nullptr, 0);
    for (int64_t begin = part.begin; begin < part.end; begin += kMost) {
      RETURN_IF_ERROR(CheckNeeded());
      const int64_t elements = std::min(kMost, part.end - begin);
      const at::Tensor block = device::On(at::kCPU, flat.narrow(0, begin - piece.begin, elements));
      const void* const data = block.const_data_ptr();
      const size_t bytes = elements * sizeof(float);
      crc = crc32(crc, static_cast<const Bytef*>(data), static_cast<uInt>(bytes));
      RETURN_IF_ERROR(
          output_.WriteAt(plan_.file->offset(part.item) + begin * sizeof(float), data, bytes));
    }
    return static_cast<uint32_t>(crc);
  }

  // The CRC-32 of each item, from those of its parts.
  std::vector<uint32_t> CrcsOfItems() const {
    struct OfPart {
      int64_t begin;
      int64_t elements;
      uint32_t crc;
    };
    std::vector<std::vector<OfPart>> parts(state_.items.size());
    for (size_t rank = 0; rank < plan_.parts.size(); ++rank) {
      for (size_t i = 0; i < plan_.parts[rank].size(); ++i) {
        const Part& part = plan_.parts[rank][i];
        uint32_t crc = 0;
        std::memcpy(&crc, crcs_[rank].data() + i * sizeof(crc), sizeof(crc));
        parts[part.item].push_back({part.begin, part.end - part.begin, crc});
      }
    }
    std::vector<uint32_t> crcs;
    for (std::vector<OfPart>& of_item : parts) {
      std::sort(of_item.begin(), of_item.end(),
                [](const OfPart& a, const OfPart& b) { return a.begin < b.begin; });
      uLong crc = crc32(0, nullptr, 0);
      for (const OfPart& part : of_item) {
        crc = crc32_combine(crc, part.crc, static_cast<z_off_t>(part.elements * sizeof(float)));
      }
      crcs.push_back(static_cast<uint32_t>(crc));
    }
    return crcs;
  }

  // Rank 0: completes the file, and gives it its name.
  absl::Status Place(const std::function<absl::Status()>& still_mine) {
    for (const auto& [offset, bytes] : plan_.file->Fragments(CrcsOfItems())) {
      RETURN_IF_ERROR(output_.WriteAt(offset, bytes.data(), bytes.size()));
    }
    RETURN_IF_ERROR(output_.Sync());
    RETURN_IF_ERROR(CheckNeeded());
    // Both again, because writing may have taken long.
    RETURN_IF_ERROR(CheckTarget());
    if (still_mine) RETURN_IF_ERROR(still_mine());
    return files::RenameDurably(options_.temporary, options_.path, disk_);
  }

  const GatherOptions& options_;
  const State& state_;
  comm::Communicator* const communicator_;
  files::Disk& disk_;
  OutputFile output_;
  bool created_ = false;
  bool placed_ = false;  // it has its final name
  Plan plan_;
  std::vector<std::string> crcs_;  // by rank
};

}  // namespace

absl::StatusOr<GatherOutcome> GatherOptimizerState(const GatherOptions& options, const State& state,
                                                   const ModelRecords& records,
                                                   comm::Communicator* communicator,
                                                   const std::function<absl::Status()>& still_mine,
                                                   files::Disk& disk) {
  return Gather(options, state, communicator, disk).Run(records, still_mine);
}

}  // namespace muster::checkpoint
