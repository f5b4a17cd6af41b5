#include "worker/data/tokens/documents_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/filekind/file_kind.h"
#include "common/status/status.h"

namespace muster::data {
namespace {

using safetensors::DType;

static_assert(std::endian::native == std::endian::little, "the file is mapped as it is");

// The tokens or documents between two signs of life.
constexpr int64_t kBlock = 65536;
constexpr char kFormat[] = "muster-documents";
constexpr char kVersion[] = "1";

template <typename T>
T At(const uint8_t* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

std::string Found(const safetensors::Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

absl::Status CheckFormat(const safetensors::File& file) {
  const std::string format = Found(file.header().metadata, "format");
  if (format != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": expected a file of documents, as `muster data pack` makes it (format ",
        kFormat, "), found ", format.empty() ? "no format" : absl::StrCat("format ", format)));
  }
  const std::string version = Found(file.header().metadata, "version");
  if (version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": expected version ", kVersion,
                                                   " of the format, found ", version,
                                                   "; make the file again with this version"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const safetensors::Entry*> Find(const safetensors::File& file,
                                               const std::string& name,
                                               const std::vector<DType>& types) {
  const safetensors::Entry* const entry = file.Find(name);
  if (entry != nullptr && entry->shape.size() == 1 &&
      std::find(types.begin(), types.end(), entry->dtype) != types.end()) {
    return entry;
  }
  std::string expected;
  for (const DType type : types) {
    absl::StrAppend(&expected, expected.empty() ? "" : " or ", safetensors::Name(type));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": ", name, ": expected ", expected, " [N], found ",
                   entry == nullptr ? "nothing"
                                    : absl::StrCat(safetensors::Name(entry->dtype), " ",
                                                   safetensors::ShapeString(entry->shape))));
}

}  // namespace

absl::StatusOr<DocumentsFile> DocumentsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(safetensors::File mapped,
                   safetensors::File::Open(path, filekind::Wanted::kSafetensorsRows));
  RETURN_IF_ERROR(CheckFormat(mapped));
  DocumentsFile opened(std::move(mapped));
  const safetensors::File& file = opened.file_;
  ASSIGN_OR_RETURN(const auto* const bounds, Find(file, "bounds", {DType::kI64}));
  ASSIGN_OR_RETURN(const auto* const tokens, Find(file, "tokens", {DType::kU16, DType::kU32}));
  ASSIGN_OR_RETURN(const auto* const trained, Find(file, "trained", {DType::kU8}));
  if (bounds->shape[0] < 1 || trained->shape != tokens->shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a bound and as many marks as tokens, found bounds ",
                     safetensors::ShapeString(bounds->shape), ", tokens ",
                     safetensors::ShapeString(tokens->shape), ", trained ",
                     safetensors::ShapeString(trained->shape)));
  }
  const safetensors::Metadata& metadata = file.header().metadata;
  if (!absl::SimpleAtoi(Found(metadata, "vocab_size"), &opened.vocab_size_)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": vocab_size: expected a number, found ",
                                                   Found(metadata, "vocab_size")));
  }
  opened.tokenizer_ = {Found(metadata, "tokenizer"), Found(metadata, "tokenizer_xxh3_128")};
  opened.documents_ = bounds->shape[0] - 1;
  opened.tokens_ = tokens->shape[0];
  opened.width_ = static_cast<int64_t>(safetensors::ElementSize(tokens->dtype));
  opened.bounds_ = file.data(*bounds);
  opened.numbers_ = file.data(*tokens);
  opened.trained_ = file.data(*trained);
  return opened;
}

int64_t DocumentsFile::Bound(int64_t document) const { return At<int64_t>(bounds_, document); }

int64_t DocumentsFile::Token(int64_t index) const {
  return width_ == 2 ? At<uint16_t>(numbers_, index) : At<uint32_t>(numbers_, index);
}

bool DocumentsFile::HasTarget(int64_t document) const {
  const int64_t second = Bound(document) + 1;
  return std::memchr(trained_ + second, 1, Bound(document + 1) - second) != nullptr;
}

int64_t DocumentsFile::OffsetOf(int64_t token) const {
  return numbers_ - file_.mapped().data() + token * width_;
}

absl::Status DocumentsFile::CheckBounds() const {
  RETURN_IF_ERROR(CheckNotShrunk());
  const auto refuse = [&](int64_t document, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat(path(), ": bounds[", document, "]: expected ",
                                                   expected, ", found ", Bound(document)));
  };
  if (Bound(0) != 0) return refuse(0, "0");
  for (int64_t document = 0; document < documents_; ++document) {
    if (document % kBlock == 0) activity::Moved();
    // The difference of two numbers from a damaged file could overflow.
    const int64_t begin = Bound(document), end = Bound(document + 1);
    if (end > tokens_ || end < begin + 2) {
      return refuse(document + 1, absl::StrCat(begin + 2, " (two tokens for a document) to ",
                                               tokens_, " (the number of tokens)"));
    }
  }
  if (Bound(documents_) != tokens_) return refuse(documents_, absl::StrCat(tokens_));
  return absl::OkStatus();
}

absl::Status DocumentsFile::CheckTokens(int64_t begin, int64_t end, int64_t vocab_size) const {
  for (int64_t index = begin; index < end; ++index) {
    if (index % kBlock == 0) activity::Moved();
    if (Token(index) >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(path(), ": token ", Token(index), " at byte offset ", OffsetOf(index),
                       " (index ", index, ") is beyond the model's vocabulary of ", vocab_size));
    }
    if (Trained(index) > 1) {
      return absl::InvalidArgumentError(absl::StrCat(path(), ": trained[", index,
                                                     "]: expected 0 or 1, found ",
                                                     static_cast<int>(Trained(index))));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::data
