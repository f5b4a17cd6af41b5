#include "worker/data/idx_dataset.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/activity/activity.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "worker/data/elements.h"
#include "worker/data/idx.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

absl::Status WrongSize(const std::string& path, const IdxHeader& header, const std::string& found) {
  return absl::DataLossError(absl::StrCat(
      path, ": IDX: expected ", header.data_bytes, " bytes after the header, as its shape [",
      absl::StrJoin(header.shape, ", "), "] says, found ", found));
}

absl::Status TooShort(const std::string& path, size_t found) {
  return absl::DataLossError(
      absl::StrCat(path, ": IDX: truncated: expected a header, found ", found, " bytes"));
}

// Unpacks a gzip file in memory (RFC 1952). The contents of several members follow one another, as
// with gzip itself. Threading: one thread.
class Gunzip {
 public:
  // The packed bytes must outlive the object. `path`: for errors.
  Gunzip(const uint8_t* data, size_t size, const std::string& path)
      : path_(path), rest_(data), rest_size_(size) {
    ready_ = inflateInit2(&stream_, kGzipOnly) == Z_OK;
  }
  ~Gunzip() {
    if (ready_) inflateEnd(&stream_);
  }
  // Not copyable, because zlib's state points at the stream.
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // Unpacks up to `count` bytes; fewer only at the end. DATA_LOSS: not gzip, cut off, or damaged
  // (including the checksum).
  absl::StatusOr<size_t> Read(uint8_t* out, size_t count) {
    if (!ready_) return absl::ResourceExhaustedError("zlib: out of memory");
    size_t unpacked = 0;
    while (unpacked < count && !done_) {
      if (stream_.avail_in == 0) {
        if (rest_size_ == 0) return Broken("it ends within its data");
        const size_t more = std::min(rest_size_, kMostAtOnce);
        stream_.next_in = const_cast<Bytef*>(rest_);
        stream_.avail_in = static_cast<uInt>(more);
        rest_ += more;
        rest_size_ -= more;
      }
      const size_t room = std::min(count - unpacked, activity::kBlockBytes);
      stream_.next_out = out + unpacked;
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      unpacked += room - stream_.avail_out;
      activity::Moved();
      if (result == Z_STREAM_END) {
        done_ = stream_.avail_in == 0 && rest_size_ == 0;
        if (!done_) inflateReset(&stream_);
      } else if (result == Z_MEM_ERROR) {
        return absl::ResourceExhaustedError(absl::StrCat(path_, ": zlib: out of memory"));
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Broken(stream_.msg != nullptr ? stream_.msg : "its data cannot be unpacked");
      }
    }
    return unpacked;
  }

  // The largest unpacked size of this many packed bytes (deflate compresses at most 1032 to 1).
  static uint64_t MostUnpacked(size_t packed) { return uint64_t{1032} * packed; }

 private:
  // The largest amount for one call: zlib counts in unsigned int.
  static constexpr size_t kMostAtOnce = size_t{1} << 30;
  // The window argument of inflateInit2: the largest window, gzip only.
  static constexpr int kGzipOnly = 15 + 16;

  absl::Status Broken(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(path_, ": not a whole gzip file: ", what));
  }

  const std::string& path_;
  z_stream stream_ = {};
  bool ready_ = false;
  const uint8_t* rest_;  // not given to zlib yet
  size_t rest_size_;
  bool done_ = false;
};

using File = std::shared_ptr<const files::MappedFile>;

absl::StatusOr<Array> OpenPlain(const File& file, const std::string& name) {
  const std::string& path = file->path();
  if (file->size() < kIdxMagic) return TooShort(path, file->size());
  ASSIGN_OR_RETURN(const size_t header_size, IdxHeaderSize(file->data(), path));
  if (file->size() < header_size) return TooShort(path, file->size());
  ASSIGN_OR_RETURN(const IdxHeader header, ParseIdxHeader(file->data(), header_size, path));
  const int64_t found = static_cast<int64_t>(file->size()) - header.data_offset;
  if (found != header.data_bytes) return WrongSize(path, header, absl::StrCat(found));
  const Elements elements = {.type = ElementType::kUint8,
                             .shape = header.shape,
                             .data = file->data() + header.data_offset};
  return Array{elements, path, name, header.data_offset, file, file.get()};
}

absl::StatusOr<Array> OpenPacked(const files::MappedFile& file, const std::string& name) {
  const std::string& path = file.path();
  Gunzip gunzip(file.data(), file.size(), path);
  std::vector<uint8_t> start(kIdxMagic);
  ASSIGN_OR_RETURN(size_t count, gunzip.Read(start.data(), start.size()));
  if (count < start.size()) return TooShort(path, count);
  ASSIGN_OR_RETURN(const size_t header_size, IdxHeaderSize(start.data(), path));
  start.resize(header_size);
  ASSIGN_OR_RETURN(count, gunzip.Read(start.data() + kIdxMagic, header_size - kIdxMagic));
  if (count < header_size - kIdxMagic) return TooShort(path, kIdxMagic + count);
  ASSIGN_OR_RETURN(const IdxHeader header, ParseIdxHeader(start.data(), header_size, path));

  // The size is checked before memory is allocated, because a header may contain any size.
  const uint64_t most = Gunzip::MostUnpacked(file.size());
  if (static_cast<uint64_t>(header.data_bytes) > most) {
    return WrongSize(
        path, header,
        absl::StrCat("a gzip file of ", file.size(), " bytes, which holds at most ", most));
  }
  const std::shared_ptr<uint8_t[]> data(new uint8_t[header.data_bytes]);
  ASSIGN_OR_RETURN(count, gunzip.Read(data.get(), header.data_bytes));
  if (static_cast<int64_t>(count) < header.data_bytes) {
    return WrongSize(path, header, absl::StrCat(count));
  }
  uint8_t beyond;  // also reads the checksum
  ASSIGN_OR_RETURN(count, gunzip.Read(&beyond, 1));
  if (count > 0) return WrongSize(path, header, "more");
  const Elements elements = {
      .type = ElementType::kUint8, .shape = header.shape, .data = data.get()};
  return Array{elements, path, name, header.data_offset, data};
}

bool BeginsWith(const files::MappedFile& file, absl::string_view bytes) {
  return file.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), file.data(),
                                                   [](char a, uint8_t b) {
                                                     return static_cast<uint8_t>(a) == b;
                                                   });
}

absl::StatusOr<Array> Open(const std::string& path, const std::string& name,
                           const std::vector<size_t>& ranks, const char* expected) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  const bool gzip = BeginsWith(*file, "\x1f\x8b");
  if (!gzip) {
    RETURN_IF_ERROR(
        filekind::CheckKind(path, file->data(), file->size(), filekind::Wanted::kIdx));
  }
  // Some programs unpack downloaded files, and keep the names.
  const bool plain = BeginsWith(*file, absl::string_view("\0\0", 2));
  const bool packed = gzip || (absl::EndsWith(path, ".gz") && !plain);
  ASSIGN_OR_RETURN(Array array, packed ? OpenPacked(*file, name) : OpenPlain(file, name));
  for (const size_t rank : ranks) {
    if (array.shape.size() == rank) return array;
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, ": expected ", expected,
                                                 ", found [", absl::StrJoin(array.shape, ", "),
                                                 "]"));
}

absl::StatusOr<ByteValues> Values(double mean, double std) {
  ByteValues values;
  for (int byte = 0; byte < 256; ++byte) {
    values[byte] = static_cast<float>((byte / 255.0 - mean) / std);
    if (!std::isfinite(values[byte])) {
      return absl::InvalidArgumentError(absl::StrCat("the byte ", byte, " becomes ", values[byte],
                                                     " with mean ", mean, " and std ", std));
    }
  }
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const IdxOptions& options, const InputSpec& spec,
                                                 Labels has_labels) {
  const bool labelled = has_labels == Labels::kNeeded;
  if (labelled && options.images.size() != options.labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected as many files of labels as of images, ", options.images.size(),
                     ", found ", options.labels.size()));
  }
  if (labelled && spec.target_numbers > 0) {
    return absl::InvalidArgumentError(
        "the labels of IDX files are classes, the model's loss takes numbers");
  }
  ASSIGN_OR_RETURN(const ByteValues values, Values(options.mean, options.std));
  std::vector<RowFile> files;
  for (size_t i = 0; i < options.images.size(); ++i) {
    RowFile& file = files.emplace_back();
    ASSIGN_OR_RETURN(file.inputs,
                     Open(options.images[i], "images", {3, 4}, "[N, H, W] or [N, C, H, W]"));
    if (file.inputs.shape.size() == 3) {
      file.inputs.shape.insert(file.inputs.shape.begin() + 1, 1);
    }
    if (!labelled) continue;
    ASSIGN_OR_RETURN(file.labels, Open(options.labels[i], "labels", {1}, "[N]"));
  }
  return MakeRowDataset(std::move(files), spec, has_labels, values);
}

}  // namespace muster::data
