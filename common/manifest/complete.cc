#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/hash.h"
#include "common/manifest/manifest.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"

namespace muster::manifest {
namespace {

using safetensors::ShapeString;

// The number of elements; -1 for an impossible shape.
int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return elements;
}

void CheckTensor(const std::string& name, std::vector<const Piece*> pieces, Problems* problems) {
  const std::vector<int64_t>& shape = pieces.front()->shape;
  for (const Piece* piece : pieces) {
    if (piece->shape != shape) {
      problems->Add(absl::StrCat(name, ": its pieces disagree on the shape: ", ShapeString(shape),
                                 " and ", ShapeString(piece->shape)));
      return;
    }
    if (piece->dtype != pieces.front()->dtype) {
      problems->Add(absl::StrCat(name, ": its pieces disagree on the dtype: ",
                                 pieces.front()->dtype, " and ", piece->dtype));
      return;
    }
  }
  const int64_t elements = ElementsOf(shape);
  if (elements < 0) {
    problems->Add(absl::StrCat(name, ": bad shape ", ShapeString(shape)));
    return;
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t covered = 0;
  for (const Piece* piece : pieces) {
    if (piece->begin != covered || piece->end < piece->begin || piece->end > elements) {
      problems->Add(absl::StrCat(name, ": expected a piece that begins at ", covered, " of ",
                                 elements, " elements, found [", piece->begin, ", ", piece->end,
                                 ") in ", piece->file));
      return;
    }
    covered = piece->end;
  }
  if (covered != elements) {
    problems->Add(
        absl::StrCat(name, ": expected ", elements, " elements, found the first ", covered));
  }
}

// Adds the problems of a file in a manifest with blocks.
void CheckBlocks(const FileRecord& file, Problems* problems) {
  const uint64_t expected = file.size / files::kHashedBlock + (file.size % files::kHashedBlock > 0);
  if (file.blocks.size() == expected) return;
  problems->Add(absl::StrCat("file '", file.name, "': expected ", expected, " blocks in ",
                             file.size, " bytes, found ", file.blocks.size()));
}

// Checks `piece`, a part of a tensor of a possible size, against the size of its file.
void CheckInFile(const Piece& piece, uint64_t file_size, Problems* problems) {
  uint64_t bytes = 0;
  const auto dtype = safetensors::DTypeOf(piece.dtype);
  const auto elements = static_cast<uint64_t>(piece.end - piece.begin);
  if (dtype.has_value() && piece.offset >= 0 &&
      !__builtin_mul_overflow(elements, safetensors::ElementSize(*dtype), &bytes) &&
      static_cast<uint64_t>(piece.offset) <= file_size &&
      bytes <= file_size - static_cast<uint64_t>(piece.offset)) {
    return;
  }
  problems->Add(absl::StrCat(EntryName(piece), ": ", elements, " elements of ", piece.dtype,
                             " at byte ", piece.offset, " do not lie in '", piece.file,
                             "', which has ", file_size, " bytes"));
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

absl::Status CheckComplete(const Manifest& manifest) {
  Problems problems;
  std::map<std::string, uint64_t> files;  // name -> size
  for (const FileRecord& file : manifest.files) {
    if (!IsPlainName(file.name)) {
      problems.Add(absl::StrCat("file '", file.name, "': not a plain file name"));
    }
    if (!files.emplace(file.name, file.size).second) {
      problems.Add(absl::StrCat("file '", file.name, "' is listed twice"));
    }
    CheckBlocks(file, &problems);
  }
  std::map<std::string, std::vector<const Piece*>> tensors;
  std::set<std::pair<std::string, std::string>> places;
  for (const Piece& piece : manifest.pieces) {
    const std::string name = EntryName(piece);
    if (files.count(piece.file) == 0) {
      problems.Add(absl::StrCat(name, ": its file '", piece.file, "' is not listed"));
    }
    if (!places.insert({piece.file, name}).second) {
      problems.Add(absl::StrCat(name, ": two pieces in '", piece.file, "'"));
    }
    tensors[name].push_back(&piece);
  }
  for (auto& [name, pieces] : tensors) CheckTensor(name, std::move(pieces), &problems);
  if (problems.count() == 0) {
    for (const Piece& piece : manifest.pieces) {
      CheckInFile(piece, files.at(piece.file), &problems);
    }
  }
  return problems.ToStatus(absl::StatusCode::kDataLoss, "manifest");
}

}  // namespace muster::manifest
