#include "worker/checkpoint/write_together.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/zeros.h"
#include "common/activity/activity.h"
#include "common/files/hash.h"
#include "common/modelfolder/plan.h"
#include "common/sharding/placement.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/output_file.h"
#include "worker/checkpoint/shard.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;
using sharding::Range;

// Elements [begin, end) of an item, written by one rank.
struct Part {
  size_t item;
  int64_t begin;
  int64_t end;
};

// The parts in portions of at most `elements`, in order.
std::vector<Part> Portions(const std::vector<Part>& parts, int64_t elements) {
  std::vector<Part> portions;
  for (const Part& part : parts) {
    for (int64_t begin = part.begin; begin < part.end; begin += elements) {
      portions.push_back({part.item, begin, std::min(part.end, begin + elements)});
    }
  }
  return portions;
}

// The state of one call on one rank.
class Writer {
 public:
  Writer(const absl::StatusOr<std::unique_ptr<JointOutput>>& output, const State& state,
         comm::Communicator* communicator, const WriteTogetherOptions& options, files::Disk& disk)
      : made_(output.status()),
        output_(output.ok() ? output->get() : nullptr),
        state_(state),
        communicator_(communicator),
        options_(options),
        disk_(disk) {}
  // Other processes do not use these names, so they can be removed.
  ~Writer() {
    if (leader() && output_ != nullptr && !placed_) output_->Discard();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  absl::StatusOr<WriteTogetherOutcome> Run() {
    WriteTogetherOutcome outcome;
    ASSIGN_OR_RETURN(const auto begun, Share(Begin(), "files begun"));
    outcome.status = Combine(begun);
    if (outcome.status.ok()) {
      for (const JointOutput::File& file : output_->files()) outcome.bytes += file.size;
      RETURN_IF_ERROR(WriteElements(&outcome.status));
    }
    absl::Status placed;
    if (leader() && outcome.status.ok()) {
      placed = Place();
      placed_ = placed.ok();
    }
    files_.clear();
    if (leader() && output_ != nullptr && !placed_) output_->Discard();
    ASSIGN_OR_RETURN(const auto told, Share(placed, "files placed"));
    if (outcome.status.ok()) outcome.status = told[0].status();
    return outcome;
  }

 private:
  bool leader() const { return communicator_->rank() == 0; }
  const std::vector<Part>& own() const { return parts_[communicator_->rank()]; }

  absl::StatusOr<std::vector<PartResult>> Share(const absl::Status& mine, const char* what) {
    return Exchange(*communicator_, ToResult(mine), what, options_.step);
  }

  absl::Status CheckNeeded() const {
    if (options_.cancelled == nullptr || !*options_.cancelled) return absl::OkStatus();
    return absl::CancelledError("cancelled before the file was complete");
  }

  absl::Status Begin() {
    RETURN_IF_ERROR(made_);
    RETURN_IF_ERROR(CheckWritable(state_, communicator_->rank(), communicator_->world_size()));
    for (const std::vector<Range>& ranges : PartsByRank(state_)) {
      std::vector<Part>& parts = parts_.emplace_back();
      for (const Range& range : ranges) {
        if (range.begin == range.end) continue;
        parts.push_back({static_cast<size_t>(range.parameter), range.begin, range.end});
      }
    }
    for (const HeldPiece& piece : state_.held) held_[piece.item] = &piece;
    if (!leader()) return absl::OkStatus();
    RETURN_IF_ERROR(output_->CheckTarget());
    RETURN_IF_ERROR(output_->MakeFolders());
    for (size_t i = 0; i < output_->files().size(); ++i) {
      const JointOutput::File& file = output_->files()[i];
      ASSIGN_OR_RETURN(OutputFile created,
                       OutputFile::Create(file.path, file.size, disk_, file.mode));
      files_.emplace(i, std::move(created));
    }
    return absl::OkStatus();
  }

  // Opens the files in which this rank has elements. NOT_FOUND: this rank does not see the files.
  absl::Status OpenFiles() {
    if (leader()) return absl::OkStatus();
    for (const Part& part : own()) {
      const size_t number = output_->places()[part.item].file;
      if (files_.contains(number)) continue;
      const JointOutput::File& file = output_->files()[number];
      ASSIGN_OR_RETURN(OutputFile opened, OutputFile::Open(file.path, file.size, disk_));
      files_.emplace(number, std::move(opened));
    }
    return absl::OkStatus();
  }

  // Writes all ranks' elements. `outcome`: the outcome of the call. Errors: the communicator's.
  absl::Status WriteElements(absl::Status* outcome) {
    ASSIGN_OR_RETURN(const auto opened, Share(OpenFiles(), "files opened"));
    std::vector<int> senders;
    for (size_t rank = 0; rank < opened.size(); ++rank) {
      if (absl::IsNotFound(opened[rank].status())) {
        senders.push_back(static_cast<int>(rank));
      } else if (!opened[rank].ok()) {
        *outcome = Combine(opened);
        return absl::OkStatus();
      }
    }
    const bool sends =
        std::find(senders.begin(), senders.end(), communicator_->rank()) != senders.end();
    crcs_.assign(own().size(), static_cast<uint32_t>(crc32(0, nullptr, 0)));
    absl::Status mine = sends ? absl::OkStatus() : WriteParts();
    if (!senders.empty()) RETURN_IF_ERROR(SendAll(senders, sends, &mine));
    ASSIGN_OR_RETURN(const auto written, Share(mine, "files written"));
    const std::string crcs(reinterpret_cast<const char*>(crcs_.data()),
                           output_->needs_crcs() ? crcs_.size() * sizeof(uint32_t) : 0);
    ASSIGN_OR_RETURN(all_crcs_, GatherTexts(*communicator_, crcs, "checksums", options_.step));
    *outcome = Combine(written);
    return absl::OkStatus();
  }

  // Writes this rank's parts into the files.
  absl::Status WriteParts() {
    for (size_t i = 0; i < own().size(); ++i) {
      const auto size = static_cast<int64_t>(c10::elementSize(state_.items[own()[i].item].type));
      for (const Part& portion : Portions({own()[i]}, kMostBytes / size)) {
        RETURN_IF_ERROR(CheckNeeded());
        ASSIGN_OR_RETURN(const Contents contents, ContentsOf(portion));
        AddToCrc(i, contents);
        RETURN_IF_ERROR(WriteAt(portion, contents.data, contents.bytes));
      }
    }
    for (auto& [number, file] : files_) RETURN_IF_ERROR(file.Sync());
    return absl::OkStatus();
  }

  absl::Status WriteAt(const Part& portion, const void* data, size_t bytes) {
    const JointOutput::Place& place = output_->places()[portion.item];
    return files_.at(place.file)
        .WriteAt(place.offset + portion.begin * safetensors::ElementSize(place.dtype), data, bytes);
  }

  // The bytes of elements that this rank holds, in the form of the file. Valid until the next call.
  struct Contents {
    const void* data;
    size_t bytes;
  };
  absl::StatusOr<Contents> ContentsOf(const Part& portion) {
    const HeldPiece& piece = *held_.at(portion.item);
    const int64_t elements = portion.end - portion.begin;
    block_ = device::On(at::kCPU, piece.tensor.detach().view({-1}).narrow(
                                      0, portion.begin - piece.begin, elements));
    const DType dtype = output_->places()[portion.item].dtype;
    if (dtype == DType::kF32 || block_.scalar_type() != at::kFloat) {
      return Contents{block_.const_data_ptr(), static_cast<size_t>(block_.nbytes())};
    }
    converted_.resize(elements * safetensors::ElementSize(dtype));
    RETURN_IF_ERROR(Annotate(
        modelfolder::ConvertFloats(block_.const_data_ptr(), elements, dtype, converted_.data()),
        Name(state_.items[portion.item])));
    return Contents{converted_.data(), converted_.size()};
  }

  void AddToCrc(size_t part, const Contents& contents) {
    if (!output_->needs_crcs()) return;
    crcs_[part] = static_cast<uint32_t>(crc32(crcs_[part], static_cast<const Bytef*>(contents.data),
                                              static_cast<uInt>(contents.bytes)));
  }

  // Sends the parts of `senders` to rank 0, which writes them. Each sender sends one portion in
  // each round. All ranks end in the same round. `mine`: this rank's error, from before or from
  // this call. Errors: the communicator's.
  absl::Status SendAll(const std::vector<int>& senders, bool sends, absl::Status* mine) {
    const int64_t most = std::max<int64_t>(
        kMostBytes / static_cast<int64_t>(sizeof(int64_t) * senders.size()), int64_t{1} << 13);
    std::map<int, std::vector<Part>> portions;
    size_t rounds = 0;
    for (const int rank : senders) {
      portions[rank] = Portions(parts_[rank], most);
      rounds = std::max(rounds, portions[rank].size());
    }
    // The portions of one part follow one another.
    size_t part = 0;
    for (size_t round = 0; round < rounds; ++round) {
      if (mine->ok()) *mine = CheckNeeded();
      ASSIGN_OR_RETURN(const auto results, Share(*mine, "files to send"));
      if (!Combine(results).ok()) return absl::OkStatus();
      Contents contents{nullptr, 0};
      if (sends && round < portions[communicator_->rank()].size()) {
        const Part& portion = portions[communicator_->rank()][round];
        if (round > 0 && portion.item != portions[communicator_->rank()][round - 1].item) ++part;
        const auto own_contents = ContentsOf(portion);
        // The contents are not used, because the next round ends here.
        *mine = own_contents.status();
        if (mine->ok()) {
          contents = *own_contents;
          AddToCrc(part, contents);
        }
      }
      RETURN_IF_ERROR(SendOne(senders, portions, round, contents, mine));
    }
    return absl::OkStatus();
  }

  size_t BytesOf(const Part& portion) const {
    return (portion.end - portion.begin) *
           safetensors::ElementSize(output_->places()[portion.item].dtype);
  }

  absl::Status SendOne(const std::vector<int>& senders,
                       const std::map<int, std::vector<Part>>& portions, size_t round,
                       const Contents& contents, absl::Status* mine) {
    // Bytes are sent as words, which every communicator takes.
    const auto words_of = [](size_t bytes) { return static_cast<int64_t>((bytes + 7) / 8); };
    const int ranks = communicator_->world_size();
    std::vector<int64_t> in_sizes(ranks, 0), out_sizes(ranks, 0);
    int64_t received = 0;
    for (const int rank : senders) {
      if (round >= portions.at(rank).size()) continue;
      const int64_t words = words_of(BytesOf(portions.at(rank)[round]));
      if (leader()) out_sizes[rank] = words;
      if (leader()) received += words;
      if (rank == communicator_->rank()) in_sizes[0] = words;
    }
    const at::Tensor in = at::zeros({in_sizes[0]}, at::kLong);
    if (contents.bytes > 0) std::memcpy(in.mutable_data_ptr(), contents.data, contents.bytes);
    const at::Tensor out = at::zeros({received}, at::kLong);
    RETURN_IF_ERROR(
        communicator_->AllToAll(out, out_sizes, in, in_sizes, {"files sent", options_.step})
            ->Wait());
    activity::Moved();
    if (!leader()) return absl::OkStatus();
    const int64_t* next = out.const_data_ptr<int64_t>();
    for (const int rank : senders) {
      if (out_sizes[rank] == 0) continue;
      const Part& portion = portions.at(rank)[round];
      if (mine->ok()) *mine = WriteAt(portion, next, BytesOf(portion));
      next += out_sizes[rank];
    }
    return absl::OkStatus();
  }

  // Returns the CRC-32 of each item, from the CRC-32 of its parts.
  std::vector<uint32_t> CrcsOfItems() const {
    struct OfPart {
      int64_t begin;
      int64_t elements;
      uint32_t crc;
    };
    std::vector<std::vector<OfPart>> parts(state_.items.size());
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      for (size_t i = 0; i < parts_[rank].size(); ++i) {
        const Part& part = parts_[rank][i];
        uint32_t crc = 0;
        std::memcpy(&crc, all_crcs_[rank].data() + i * sizeof(crc), sizeof(crc));
        parts[part.item].push_back({part.begin, part.end - part.begin, crc});
      }
    }
    std::vector<uint32_t> crcs;
    for (size_t item = 0; item < parts.size(); ++item) {
      std::vector<OfPart>& of_item = parts[item];
      std::sort(of_item.begin(), of_item.end(),
                [](const OfPart& a, const OfPart& b) { return a.begin < b.begin; });
      const uint64_t size = safetensors::ElementSize(output_->places()[item].dtype);
      uLong crc = crc32(0, nullptr, 0);
      for (const OfPart& part : of_item) {
        crc = crc32_combine(crc, part.crc, static_cast<z_off_t>(part.elements * size));
      }
      crcs.push_back(static_cast<uint32_t>(crc));
    }
    return crcs;
  }

  // Rank 0: completes the files, and gives the output its name.
  absl::Status Place() {
    const std::vector<uint32_t> crcs =
        output_->needs_crcs() ? CrcsOfItems() : std::vector<uint32_t>();
    for (const auto& [file, offset, bytes] : output_->Rest(crcs)) {
      RETURN_IF_ERROR(files_.at(file).WriteAt(offset, bytes.data(), bytes.size()));
    }
    for (auto& [number, file] : files_) RETURN_IF_ERROR(file.Sync());
    RETURN_IF_ERROR(CheckNeeded());
    // Both checks are repeated, because writing may have taken long.
    RETURN_IF_ERROR(output_->CheckTarget());
    if (options_.still_mine) RETURN_IF_ERROR(options_.still_mine());
    return output_->GiveName(disk_);
  }

  static constexpr int64_t kMostBytes = files::kHashedBlock;

  const absl::Status made_;
  JointOutput* const output_;
  const State& state_;
  comm::Communicator* const communicator_;
  const WriteTogetherOptions& options_;
  files::Disk& disk_;
  std::vector<std::vector<Part>> parts_;  // by rank
  std::map<size_t, const HeldPiece*> held_;
  std::map<size_t, OutputFile> files_;  // by number
  std::vector<uint32_t> crcs_;          // of this rank's parts
  std::vector<std::string> all_crcs_;   // by rank
  at::Tensor block_;
  std::vector<char> converted_;
  bool placed_ = false;  // the output has its final name
};

}  // namespace

absl::StatusOr<WriteTogetherOutcome> WriteTogether(
    const absl::StatusOr<std::unique_ptr<JointOutput>>& output, const State& state,
    comm::Communicator* communicator, const WriteTogetherOptions& options, files::Disk& disk) {
  return Writer(output, state, communicator, options, disk).Run();
}

}  // namespace muster::checkpoint
