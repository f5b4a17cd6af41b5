#include "worker/data/tokens/token_dataset.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/filekind/token_look.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"
#include "worker/data/file_offsets.h"
#include "worker/data/notes.h"
#include "worker/data/scans.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

template <typename Token>
class TokenDataset : public Dataset {
 public:
  explicit TokenDataset(const InputSpec& spec)
      : spec_(spec), context_(spec.context), vocab_size_(spec.vocab_size) {}

  absl::Status Add(const std::string& path) {
    ASSIGN_OR_RETURN(files::MappedFile file, files::MappedFile::Open(path));
    RETURN_IF_ERROR(filekind::CheckKind(path, file.data(), file.size(), filekind::Wanted::kTokens));
    if (file.size() % sizeof(Token) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": truncated: expected a multiple of ", sizeof(Token), " bytes (uint",
                       8 * sizeof(Token), " tokens), found ", file.size()));
    }
    const size_t tokens = file.size() / sizeof(Token);
    ASSIGN_OR_RETURN(const bool described, CheckOrigin(path, static_cast<int64_t>(tokens)));
    // A file with a description has the described dtype for certain.
    const auto doubt = described
                           ? std::nullopt
                           : filekind::DoubtAboutTokens(file.data(), file.size(), sizeof(Token));
    if (doubt.has_value()) notes_.Add(Note::Kind::kDoubt, *doubt, path);
    const int64_t samples = tokens == 0 ? 0 : static_cast<int64_t>(tokens - 1) / context_;
    if (samples == 0) {
      notes_.Add(Note::Kind::kDoubt,
                 absl::StrCat("fewer than ", context_ + 1,
                              " tokens, the context and one more: no sample comes from it"),
                 path);
    }
    offsets_.Append(samples);
    tokens_.Append(static_cast<int64_t>(tokens));
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  tokenizer::Source tokenizer() const override { return tokenizer_; }
  std::vector<Note> notes() const override { return notes_.All(); }
  int64_t total_tokens() const { return tokens_.size(); }
  int64_t size() const override { return offsets_.size(); }

  absl::Status Check(const Part& part) const override {
    for (const FileOffsets::Range& range : tokens_.Of(part)) {
      const files::MappedFile& file = files_[range.file];
      RETURN_IF_ERROR(file.CheckNotShrunk());
      RETURN_IF_ERROR(CheckTokens(file, range.begin, range.end - range.begin));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    const int64_t batch = static_cast<int64_t>(samples.size());
    Batch out = {at::empty({batch, context_}, at::kLong), at::empty({batch, context_}, at::kLong)};
    int64_t* inputs = out.inputs.data_ptr<int64_t>();
    int64_t* targets = out.targets.data_ptr<int64_t>();
    std::vector<bool> checked(files_.size());
    for (int64_t sample : samples) {
      ASSIGN_OR_RETURN(const FileOffsets::Place place, offsets_.Find(sample));
      const files::MappedFile& file = files_[place.file];
      if (!checked[place.file]) RETURN_IF_ERROR(file.CheckNotShrunk());
      checked[place.file] = true;
      // The tokens are checked again. The file may have been overwritten since Check, or may differ
      // from the file on the node of the rank that has checked this part.
      RETURN_IF_ERROR(CheckTokens(file, place.within * context_, context_ + 1));
      const Token* tokens = Tokens(file) + place.within * context_;
      std::copy_n(tokens, context_, inputs);
      std::copy_n(tokens + 1, context_, targets);
      inputs += context_;
      targets += context_;
    }
    return Arranged(std::move(out));
  }

  Batch Blank(int64_t samples) const override {
    return Arranged(
        {at::zeros({samples, context_}, at::kLong), at::zeros({samples, context_}, at::kLong)});
  }

 private:
  // Returns tokens and targets as the arrays of a model that returns its loss. A model that shifts
  // its targets itself gets the tokens as targets, too.
  Batch Arranged(Batch tokens) const {
    if (spec_.kind == InputSpec::Kind::kTokens) return tokens;
    const size_t targets = spec_.counted->input;
    std::vector<at::Tensor> arrays(2, tokens.inputs);
    if (spec_.counted->first == 0) arrays[targets] = tokens.targets;
    return {.inputs = arrays[0],
            .targets = models::CountedTargets(spec_, arrays),
            .further = {arrays[1]}};
  }

  static const Token* Tokens(const files::MappedFile& file) {
    return reinterpret_cast<const Token*>(file.data());
  }

  absl::Status CheckTokens(const files::MappedFile& file, size_t first, size_t count) const {
    const auto found = FirstBeyond(Tokens(file) + first, count, vocab_size_);
    if (!found.has_value()) return absl::OkStatus();
    const size_t at = first + *found;
    const auto other = filekind::OtherReading(file.data(), file.size(), sizeof(Token), vocab_size_);
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": token ", Tokens(file)[at], " at byte offset ",
                     at * sizeof(Token), " (index ", at, ") is beyond the model's vocabulary of ",
                     vocab_size_, other.has_value() ? "; " : "", other.value_or("")));
  }

  // True if the file has a description of its tokenizer.
  absl::StatusOr<bool> CheckOrigin(const std::string& path, int64_t tokens) {
    ASSIGN_OR_RETURN(const auto sidecar, tokenizer::ReadSidecar(path));
    if (!sidecar.has_value()) return false;
    RETURN_IF_ERROR(tokenizer::CheckSidecar(*sidecar, path, absl::StrCat("uint", 8 * sizeof(Token)),
                                            tokens, vocab_size_));
    if (!tokenizer_.known()) {
      tokenizer_ = sidecar->tokenizer;
      tokenized_ = path;
    }
    RETURN_IF_ERROR(
        tokenizer::CheckSameTokenizer(tokenizer_, tokenized_, sidecar->tokenizer, path));
    return true;
  }

  const InputSpec spec_;
  const int64_t context_;
  const int64_t vocab_size_;
  tokenizer::Source tokenizer_;
  std::string tokenized_;  // the first file with a sidecar
  std::vector<files::MappedFile> files_;
  FileOffsets offsets_;  // of samples
  FileOffsets tokens_;
  Notes notes_;
};

template <typename Token>
absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::vector<std::string>& paths,
                                              const InputSpec& spec, Emptiness emptiness) {
  auto dataset = std::make_unique<TokenDataset<Token>>(spec);
  for (const std::string& path : paths) RETURN_IF_ERROR(dataset->Add(path));
  if (dataset->size() == 0 && emptiness == Emptiness::kRefused) {
    return absl::InvalidArgumentError(absl::StrCat(
        paths.front(), paths.size() > 1 ? absl::StrCat(" and ", paths.size() - 1, " more") : "",
        ": too short: one sample takes ", spec.context + 1, " tokens (context + 1), found ",
        dataset->total_tokens()));
  }
  return dataset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const std::vector<std::string>& paths,
                                                    std::optional<TokenType> type,
                                                    const InputSpec& spec, Emptiness emptiness) {
  if (spec.kind == InputSpec::Kind::kRows) {
    return absl::InvalidArgumentError("the model takes rows, the data are tokens");
  }
  if (spec.vocab_size == 0) {
    return absl::InvalidArgumentError(
        "the model takes its inputs by name; expected safetensors files, found tokens, which only "
        "fill a model with the inputs `input_ids` and `labels` that returns its loss");
  }
  if (paths.empty()) return absl::InvalidArgumentError("tokens: expected at least one path");
  const TokenType usual = spec.vocab_size > 65536 ? TokenType::kUint32 : TokenType::kUint16;
  return type.value_or(usual) == TokenType::kUint16 ? Open<uint16_t>(paths, spec, emptiness)
                                                    : Open<uint32_t>(paths, spec, emptiness);
}

}  // namespace muster::data
