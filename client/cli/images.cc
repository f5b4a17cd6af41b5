#include "client/cli/images.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/glyphs.h"
#include "client/cli/staged_file.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

absl::Status InRange(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", value, ": allowed is ", low, " to ", high));
}

// Unsigned bytes of these dimensions.
std::string IdxHeader(const std::vector<uint64_t>& shape) {
  std::string header = {0, 0, 8, static_cast<char>(shape.size())};
  for (const uint64_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift);
  }
  return header;
}

struct Set {
  const char* name;
  uint64_t split;
  uint64_t count;
};

using Staged = std::unique_ptr<StagedFile>;

absl::Status Draw(const ImagesOptions& options, const Set& set, StagedFile* images,
                  StagedFile* labels, const std::function<bool()>& interrupted) {
  const uint64_t size = options.size;
  const std::string images_header = IdxHeader({set.count, size, size});
  RETURN_IF_ERROR(images->Append(images_header.data(), images_header.size()));
  const std::string labels_header = IdxHeader({set.count});
  RETURN_IF_ERROR(labels->Append(labels_header.data(), labels_header.size()));
  for (uint64_t i = 0; i < set.count; ++i) {
    if (i % 256 == 0 && interrupted()) return absl::CancelledError("interrupted");
    const Glyph glyph = DrawGlyph(options.seed, set.split, i, options.size);
    RETURN_IF_ERROR(images->Append(glyph.pixels.data(), glyph.pixels.size()));
    RETURN_IF_ERROR(labels->Append(&glyph.label, 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ImageFile>> MakeImages(const ImagesOptions& options,
                                                  const std::function<bool()>& interrupted) {
  RETURN_IF_ERROR(InRange("--train", options.train, 1, kMostImages));
  RETURN_IF_ERROR(InRange("--test", options.test, 1, kMostImages));
  RETURN_IF_ERROR(InRange("--size", options.size, kLeastImageSize, kMostImageSize));
  RETURN_IF_ERROR(files::CreateDirectories(options.folder));
  std::vector<Staged> staged;
  std::vector<ImageFile> made;
  for (const Set& set : {Set{"train", 0, static_cast<uint64_t>(options.train)},
                         Set{"t10k", 1, static_cast<uint64_t>(options.test)}}) {
    for (const char* kind : {"-images-idx3-ubyte", "-labels-idx1-ubyte"}) {
      made.push_back({files::JoinPath(options.folder, absl::StrCat(set.name, kind)), set.count});
      ASSIGN_OR_RETURN(staged.emplace_back(), StagedFile::Create(made.back().path));
    }
    RETURN_IF_ERROR(
        Draw(options, set, staged[staged.size() - 2].get(), staged.back().get(), interrupted));
  }
  for (const Staged& file : staged) RETURN_IF_ERROR(file->MakeDurable());
  for (const Staged& file : staged) RETURN_IF_ERROR(file->Publish());
  return made;
}

}  // namespace muster::cli
