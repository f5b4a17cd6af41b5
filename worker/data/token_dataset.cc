#include "worker/data/token_dataset.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "worker/data/max_token.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

template <typename Token>
class TokenDataset : public Dataset {
 public:
  explicit TokenDataset(int64_t context) : context_(context) {}

  absl::Status Add(const std::string& path, int64_t vocab_size) {
    ASSIGN_OR_RETURN(files::MappedFile file, files::MappedFile::Open(path));
    if (file.size() % sizeof(Token) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": truncated: expected a multiple of ", sizeof(Token), " bytes (uint",
                       8 * sizeof(Token), " tokens), found ", file.size()));
    }
    const size_t tokens = file.size() / sizeof(Token);
    const Token* data = reinterpret_cast<const Token*>(file.data());
    if (const auto at = FirstBeyond(data, tokens, vocab_size); at.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": token ", data[*at], " at byte offset ", *at * sizeof(Token),
                       " is beyond the model's vocabulary of ", vocab_size));
    }
    const int64_t samples = tokens == 0 ? 0 : static_cast<int64_t>(tokens - 1) / context_;
    total_tokens_ += static_cast<int64_t>(tokens);
    size_ += samples;
    files_.push_back(std::move(file));
    ends_.push_back(size_);
    return absl::OkStatus();
  }

  int64_t total_tokens() const { return total_tokens_; }
  int64_t size() const override { return size_; }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    const int64_t batch = static_cast<int64_t>(samples.size());
    Batch out = {at::empty({batch, context_}, at::kLong), at::empty({batch, context_}, at::kLong)};
    int64_t* inputs = out.inputs.data_ptr<int64_t>();
    int64_t* targets = out.targets.data_ptr<int64_t>();
    for (int64_t sample : samples) {
      if (sample < 0 || sample >= size_) {
        return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": expected one of ", size_));
      }
      const size_t file = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
      const int64_t within = sample - (file == 0 ? 0 : ends_[file - 1]);
      const Token* tokens = reinterpret_cast<const Token*>(files_[file].data()) + within * context_;
      std::copy_n(tokens, context_, inputs);
      std::copy_n(tokens + 1, context_, targets);
      inputs += context_;
      targets += context_;
    }
    return out;
  }

 private:
  const int64_t context_;
  int64_t size_ = 0;
  int64_t total_tokens_ = 0;
  std::vector<files::MappedFile> files_;
  std::vector<int64_t> ends_;  // samples in the files up to and with this one
};

template <typename Token>
absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::vector<std::string>& paths,
                                              const InputSpec& spec) {
  auto dataset = std::make_unique<TokenDataset<Token>>(spec.context);
  for (const std::string& path : paths) RETURN_IF_ERROR(dataset->Add(path, spec.vocab_size));
  if (dataset->size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        paths.front(), paths.size() > 1 ? absl::StrCat(" and ", paths.size() - 1, " more") : "",
        ": too short: one sample takes ", spec.context + 1, " tokens (context + 1), found ",
        dataset->total_tokens()));
  }
  return dataset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const std::vector<std::string>& paths,
                                                    TokenType type, const InputSpec& spec) {
  if (spec.kind != InputSpec::Kind::kTokens) {
    return absl::InvalidArgumentError("the model takes rows, the data are tokens");
  }
  if (paths.empty()) return absl::InvalidArgumentError("tokens: expected at least one path");
  return type == TokenType::kUint16 ? Open<uint16_t>(paths, spec) : Open<uint32_t>(paths, spec);
}

}  // namespace muster::data
