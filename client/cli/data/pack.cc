#include "client/cli/data/pack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/files/partial_file.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"

namespace muster::cli {
namespace {

constexpr size_t kChunk = 1 << 20;

class TokenWriter {
 public:
  explicit TokenWriter(std::string path) : path_(std::move(path)) {}

  absl::Status Open() {
    ASSIGN_OR_RETURN(file_, client::StagedFile::Create(path_));
    return absl::OkStatus();
  }

  absl::Status Append(const uint8_t* bytes, size_t count) {
    buffer_.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
      buffer_[2 * i] = bytes[i];
      buffer_[2 * i + 1] = 0;
      ++counts_[bytes[i]];
    }
    tokens_ += count;
    return file_->Append(buffer_.data(), buffer_.size());
  }

  absl::Status MakeDurable() { return file_->MakeDurable(); }
  absl::Status Publish() {
    // An old sidecar is removed: its file may have been made with a tokenizer, and these tokens
    // were not.
    std::error_code error;
    std::filesystem::remove(tokenizer::SidecarPath(path_), error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot remove ", tokenizer::SidecarPath(path_),
                       ", which describes the tokens that were there: ", error.message()));
    }
    return file_->Publish();
  }

  PackedFile result() const {
    return {.path = path_, .tokens = tokens_, .unigram_entropy = UnigramEntropy()};
  }

 private:
  double UnigramEntropy() const {
    double entropy = 0;
    for (const uint64_t count : counts_) {
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(tokens_);
      entropy -= share * std::log(share);
    }
    return entropy;
  }

  const std::string path_;
  std::unique_ptr<client::StagedFile> file_;
  std::vector<uint8_t> buffer_;
  uint64_t tokens_ = 0;
  std::array<uint64_t, 256> counts_ = {};
};

absl::Status Check(const PackOptions& options) {
  const bool splits = options.split.has_value();
  if (splits && !(*options.split > 0 && *options.split < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split ", *options.split, ": allowed is a number above 0 and below 1"));
  }
  if (splits != !options.out_rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split and --out-rest belong together: ", splits ? "--out-rest" : "--split",
                     " is missing"));
  }
  std::error_code ignored;
  for (const std::string& out : {options.out, options.out_rest}) {
    for (const std::string& input : options.inputs) {
      if (std::filesystem::equivalent(out, input, ignored) ||
          std::filesystem::equivalent(tokenizer::SidecarPath(out), input, ignored)) {
        return absl::InvalidArgumentError(absl::StrCat(out, " is both input and output"));
      }
    }
  }
  if (splits && std::filesystem::weakly_canonical(options.out, ignored) ==
                    std::filesystem::weakly_canonical(options.out_rest, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat("--out and --out-rest are both ", options.out));
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const std::string& path, filekind::Wanted wanted) {
  const auto file = files::MappedFile::Open(path);
  if (!file.ok()) return absl::OkStatus();
  return filekind::CheckKind(path, file->data(), file->size(), wanted);
}

}  // namespace

absl::Status CheckPackInputs(const std::vector<std::string>& inputs, const std::string& tokenizer) {
  for (const std::string& input : inputs) {
    RETURN_IF_ERROR(CheckInput(input, filekind::Wanted::kText));
  }
  return tokenizer.empty() ? absl::OkStatus() : CheckInput(tokenizer, filekind::Wanted::kJson);
}

absl::StatusOr<std::vector<PackedFile>> Pack(const PackOptions& options,
                                             const std::function<bool()>& interrupted) {
  RETURN_IF_ERROR(Check(options));
  std::vector<files::MappedFile> inputs;
  uint64_t total = 0;
  for (const std::string& path : options.inputs) {
    ASSIGN_OR_RETURN(files::MappedFile input, files::MappedFile::Open(path));
    total += input.size();
    inputs.push_back(std::move(input));
  }
  std::vector<std::unique_ptr<TokenWriter>> writers;
  writers.push_back(std::make_unique<TokenWriter>(options.out));
  uint64_t first = total;
  if (options.split.has_value()) {
    writers.push_back(std::make_unique<TokenWriter>(options.out_rest));
    first = static_cast<uint64_t>(std::floor(static_cast<double>(total) * *options.split));
  }
  if (first == 0 || (writers.size() == 2 && first == total)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs have ", total, " bytes together, which leaves ",
        writers.size() == 1 ? "the token file" : "one of the two token files", " without a token"));
  }
  for (const auto& writer : writers) RETURN_IF_ERROR(writer->Open());
  uint64_t done = 0;
  for (const files::MappedFile& input : inputs) {
    for (size_t at = 0; at < input.size();) {
      if (interrupted()) return absl::CancelledError("interrupted");
      const bool in_first = done < first;
      size_t count = std::min(kChunk, input.size() - at);
      if (in_first) count = std::min<uint64_t>(count, first - done);
      RETURN_IF_ERROR(writers[in_first ? 0 : 1]->Append(input.data() + at, count));
      at += count;
      done += count;
    }
  }
  for (const auto& writer : writers) RETURN_IF_ERROR(writer->MakeDurable());
  std::vector<PackedFile> results;
  for (const auto& writer : writers) {
    RETURN_IF_ERROR(writer->Publish());
    results.push_back(writer->result());
  }
  return results;
}

}  // namespace muster::cli
