#include "worker/checkpoint/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/manifest/tensor_reader.h"
#include "common/problems/faults.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/sharding/placement.h"
#include "common/status/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {

using safetensors::ShapeString;

namespace {

constexpr int64_t kBlock = files::kHashedBlock;

// Reads parts of one file of a checkpoint, and checks them against the hashes of the manifest.
// Threading: one thread.
class CheckedFile {
 public:
  // The file of this record in `directory`. Read opens the file.
  CheckedFile(const std::string& directory, const manifest::FileRecord& record)
      : path_(files::JoinPath(directory, record.name)), record_(record) {}

  // Bytes [offset, offset + bytes) of the file, whose place in a tensor begins at byte `begin`. An
  // undefined tensor: the bytes are only checked.
  struct Range {
    int64_t offset;
    int64_t bytes;
    at::Tensor to;
    int64_t begin;
  };
  void Want(Range range) {
    if (range.bytes == 0) return;
    const int64_t last = (range.offset + range.bytes - 1) / kBlock;
    for (int64_t block = range.offset / kBlock; block <= last; ++block) wanted_.insert(block);
    ranges_.push_back(std::move(range));
  }
  // Adds a block to check, if the file has this block; Block::kWholeFile: all blocks.
  void Check(int64_t block) {
    const int64_t blocks = std::ssize(record_.blocks);
    if (block == Block::kWholeFile) {
      for (int64_t each = 0; each < blocks; ++each) wanted_.insert(each);
    } else if (block >= 0 && block < blocks) {
      wanted_.insert(block);
    }
  }

  // Reads each wanted block once, in order. Returns the errors by block (Block::kWholeFile: of the
  // file). DATA_LOSS: the block's hash or the file's size is not the recorded one. After a block
  // that cannot be read, later blocks are not tried.
  std::map<int64_t, absl::Status> Read() {
    if (wanted_.empty()) return {};
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.offset < b.offset; });
    first_ = 0;
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {{Block::kWholeFile, files::ErrnoStatus(errno, "open", path_)}};
    auto errors = ReadFrom(fd);
    close(fd);
    return errors;
  }

 private:
  // Copies the bytes of this block to the ranges that they belong to.
  void Distribute(int64_t block, const char* data, int64_t bytes) {
    const int64_t begin = block * kBlock;
    const int64_t end = begin + bytes;
    while (first_ < ranges_.size() && ranges_[first_].offset + ranges_[first_].bytes <= begin) {
      ++first_;
    }
    for (size_t i = first_; i < ranges_.size() && ranges_[i].offset < end; ++i) {
      const Range& range = ranges_[i];
      const int64_t from = std::max(range.offset, begin);
      const int64_t size = std::min(range.offset + range.bytes, end) - from;
      if (size <= 0 || !range.to.defined()) continue;
      device::CopyFromHost(range.to, range.begin + from - range.offset, data + (from - begin),
                           size);
    }
  }

  std::map<int64_t, absl::Status> ReadFrom(int fd) {
    std::map<int64_t, absl::Status> errors;
    std::vector<char> buffer(std::min<int64_t>(kBlock, record_.size));
    for (const int64_t block : wanted_) {
      const int64_t begin = block * kBlock;
      const int64_t bytes = std::min<int64_t>(kBlock, static_cast<int64_t>(record_.size) - begin);
      const absl::Status read = manifest::ReadAt(fd, begin, buffer.data(), bytes, path_);
      if (!read.ok()) {
        errors[block] = read;
        return errors;
      }
      const absl::Status checked =
          manifest::CheckBlock(record_, block, buffer.data(), bytes, path_);
      if (!checked.ok()) {
        errors[block] = checked;
        continue;
      }
      Distribute(block, buffer.data(), bytes);
      activity::Moved();
    }
    return errors;
  }

  const std::string path_;
  const manifest::FileRecord& record_;
  std::vector<Range> ranges_;  // by offset, once Read has begun
  size_t first_ = 0;           // the first range that does not end before the current block
  std::set<int64_t> wanted_;   // numbers of blocks
};

Blocks WithoutElements(const manifest::Manifest& manifest) {
  Blocks blocks;
  for (const manifest::FileRecord& file : manifest.files) {
    for (size_t i = 0; i < file.blocks.size(); ++i) {
      blocks.insert({file.name, static_cast<int64_t>(i)});
    }
  }
  for (const manifest::Piece& piece : manifest.pieces) {
    if (piece.begin == piece.end) continue;
    const auto dtype = safetensors::DTypeOf(piece.dtype);  // known: CheckComplete was OK
    const auto size = static_cast<int64_t>(safetensors::ElementSize(*dtype));
    const int64_t last = (piece.offset + (piece.end - piece.begin) * size - 1) / kBlock;
    for (int64_t block = piece.offset / kBlock; block <= last; ++block) {
      blocks.erase({piece.file, block});
    }
  }
  return blocks;
}

}  // namespace

absl::StatusOr<Reader> Reader::Open(const std::string& directory) {
  ASSIGN_OR_RETURN(manifest::Manifest manifest, manifest::Read(directory));
  RETURN_IF_ERROR(Annotate(manifest::CheckComplete(manifest), directory));
  RETURN_IF_ERROR(manifest::CheckFiles(directory, manifest));
  return Reader(directory, std::move(manifest));
}

Reader::Reader(std::string directory, manifest::Manifest manifest)
    : directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      without_elements_(WithoutElements(manifest_)) {}

absl::Status Reader::CheckFits(const State& state, Surplus surplus) const {
  std::map<std::string, const manifest::Piece*> saved;
  for (const manifest::Piece& piece : manifest_.pieces) saved[manifest::EntryName(piece)] = &piece;
  Problems problems;
  for (const StateItem& item : state.items) {
    const std::string name = Name(item);
    const auto found = saved.find(name);
    if (found == saved.end()) {
      problems.Add(absl::StrCat("no ", name));
      continue;
    }
    const manifest::Piece& piece = *found->second;
    if (item.shape != piece.shape) {
      problems.Add(absl::StrCat(name, ": expected ", ShapeString(item.shape), ", found ",
                                ShapeString(piece.shape)));
    } else if (DTypeName(item.type) != piece.dtype) {
      problems.Add(
          absl::StrCat(name, ": expected ", DTypeName(item.type), ", found ", piece.dtype));
    }
    saved.erase(found);
  }
  if (surplus == Surplus::kRefuse) {
    for (const auto& [name, piece] : saved) problems.Add(absl::StrCat("unexpected ", name));
  }
  return problems.ToStatus(absl::StatusCode::kFailedPrecondition,
                           absl::StrCat("checkpoint of step ", manifest_.step, " (model ",
                                        manifest_.model_kind, ") does not fit"));
}

absl::StatusOr<std::vector<Reader::Copy>> Reader::Plan(const State& state, Surplus surplus) const {
  RETURN_IF_ERROR(CheckState(state));
  RETURN_IF_ERROR(CheckFits(state, surplus));

  std::map<std::string, int64_t> items;
  sharding::Placement files;
  std::vector<std::string> names;
  for (const StateItem& item : state.items) {
    items[Name(item)] = static_cast<int64_t>(names.size());
    names.push_back(Name(item));
    files.elements.push_back(Elements(item));
  }
  // The entries of a file: item, and range of elements.
  std::map<std::string, int64_t> numbers;  // of files
  for (const manifest::FileRecord& file : manifest_.files)
    numbers.emplace(file.name, numbers.size());
  files.holders.resize(numbers.size());
  std::map<std::pair<int64_t, int64_t>, const manifest::Piece*> pieces;  // by file and item
  for (const manifest::Piece& piece : manifest_.pieces) {
    const auto item = items.find(manifest::EntryName(piece));
    if (item == items.end() || piece.begin == piece.end) continue;
    const int64_t file = numbers.at(piece.file);
    files.holders[file].push_back({item->second, piece.begin, piece.end});
    pieces[{file, item->second}] = &piece;
  }
  sharding::Placement mine{files.elements, std::vector<std::vector<sharding::Range>>(1)};
  std::vector<const HeldPiece*> held(state.items.size());
  for (const HeldPiece& piece : state.held) {
    held[piece.item] = &piece;
    if (piece.tensor.numel() == 0) continue;
    mine.holders[0].push_back(
        {static_cast<int64_t>(piece.item), piece.begin, piece.begin + piece.tensor.numel()});
  }
  ASSIGN_OR_RETURN(const std::vector<sharding::Move> moves,
                   sharding::Redistribute(files, mine, names));

  std::vector<Copy> copies;
  copies.reserve(moves.size());
  for (const sharding::Move& move : moves) {
    const manifest::Piece& piece = *pieces.at({move.from, move.parameter});
    const HeldPiece& target = *held[move.parameter];
    const int64_t size = target.tensor.element_size();
    copies.push_back({piece.file, piece.offset + (move.begin - piece.begin) * size, target.tensor,
                      (move.begin - target.begin) * size, (move.end - move.begin) * size});
  }
  return copies;
}

absl::Status Reader::Read(const std::vector<Copy>& copies, Into into, const Blocks& others,
                          Blocks* failed) const {
  std::map<std::string, CheckedFile> files;
  for (const manifest::FileRecord& record : manifest_.files) {
    files.emplace(record.name, CheckedFile(directory_, record));
  }
  for (const Copy& copy : copies) {
    files.at(copy.file).Want(
        {copy.offset, copy.bytes, into == Into::kTensors ? copy.to : at::Tensor(), copy.begin});
  }
  if (!copies.empty()) {
    for (const Block& block : without_elements_) files.at(block.file).Check(block.number);
  }
  for (const Block& block : others) {
    const auto file = files.find(block.file);
    if (file != files.end()) file->second.Check(block.number);
  }
  Faults faults;
  for (auto& [name, file] : files) {
    for (const auto& [block, status] : file.Read()) {
      failed->insert({name, block});
      faults.Add(status);
    }
  }
  return faults.ToStatus();
}

absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus) {
  ASSIGN_OR_RETURN(const Reader reader, Reader::Open(directory));
  const auto copies = reader.Plan(state, surplus);
  RETURN_IF_ERROR(Annotate(copies.status(), directory));
  Blocks failed;
  RETURN_IF_ERROR(reader.Read(*copies, Reader::Into::kTensors, {}, &failed));
  return reader.manifest();
}

}  // namespace muster::checkpoint
