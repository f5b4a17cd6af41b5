#include "worker/data/tokens/documents_dataset.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"
#include "worker/data/file_offsets.h"
#include "worker/data/notes.h"
#include "worker/data/tokens/best_fit.h"
#include "worker/data/tokens/documents_file.h"

namespace muster::data {
namespace {

// The documents between two signs of life.
constexpr int64_t kBlock = 65536;

class DocumentsDataset : public Dataset {
 public:
  DocumentsDataset(const InputSpec& spec, Packed packed)
      : spec_(spec),
        packed_(packed),
        inputs_are_targets_(spec.counted.has_value() && spec.counted->first == 1) {}

  absl::Status Add(const std::string& path) {
    ASSIGN_OR_RETURN(DocumentsFile file, DocumentsFile::Open(path));
    if (file.vocab_size() > spec_.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": the tokenizer has tokens up to ",
                                                     file.vocab_size() - 1, ", and the model's ",
                                                     "vocabulary has only ", spec_.vocab_size));
    }
    RETURN_IF_ERROR(file.CheckBounds());
    for (int64_t document = 0; document < file.documents(); ++document) {
      if (document % kBlock == 0) activity::Moved();
      const int64_t inputs = InputsOf(file.Bound(document + 1) - file.Bound(document));
      if (inputs > spec_.context) {
        const int64_t most = spec_.context + (inputs_are_targets_ ? 0 : 1);
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": document ", document, " has ", file.Bound(document + 1) - file.Bound(document),
            " tokens; expected at most ", most,
            "; make the file again with `muster data pack --context ", most - 1,
            "`, or give the model a longer context"));
      }
      if (!file.HasTarget(document)) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": no token of document ", document,
            " is trained (its first one cannot be); `muster data pack` leaves such documents out"));
      }
      inputs_.push_back(inputs);
    }
    if (!tokenizer_.known()) {
      tokenizer_ = file.tokenizer();
      tokenized_ = path;
    }
    RETURN_IF_ERROR(tokenizer::CheckSameTokenizer(tokenizer_, tokenized_, file.tokenizer(), path));
    documents_.Append(file.documents());
    tokens_.Append(file.tokens());
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  // Called once, after all files.
  void Pack() {
    if (packed_ == Packed::kEach) {
      packing_ = PackEach(documents_.size());
      return;
    }
    packing_ = PackBestFit(inputs_, spec_.context);
    notes_.Add(Note::Kind::kArranged,
               absl::StrFormat("%d documents are packed into %d samples, which are %.1f%% full",
                               documents_.size(), packing_.samples(),
                               100 * *mean_tokens() / static_cast<double>(spec_.context)),
               files_.front().path());
  }

  std::optional<double> mean_tokens() const override {
    double tokens = 0;
    for (const int64_t inputs : inputs_) tokens += static_cast<double>(inputs);
    return tokens / static_cast<double>(std::max<int64_t>(1, size()));
  }
  tokenizer::Source tokenizer() const override { return tokenizer_; }
  std::vector<Note> notes() const override { return notes_.All(); }
  int64_t size() const override { return packing_.samples(); }

  absl::Status Check(const Part& part) const override {
    for (const FileOffsets::Range& range : tokens_.Of(part)) {
      const DocumentsFile& file = files_[range.file];
      RETURN_IF_ERROR(file.CheckNotShrunk());
      RETURN_IF_ERROR(file.CheckTokens(range.begin, range.end, spec_.vocab_size));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    int64_t longest = FixedLength().value_or(0);
    for (const int64_t sample : samples) {
      if (sample < 0 || sample >= size()) {
        return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": expected one of ", size()));
      }
      int64_t length = 0;
      for (const int64_t document : packing_.Of(sample)) length += inputs_[document];
      longest = std::max(longest, length);
    }
    Rows rows = Fillers(static_cast<int64_t>(samples.size()), longest);
    for (size_t row = 0; row < samples.size(); ++row) {
      int64_t at = static_cast<int64_t>(row) * longest;
      for (const int64_t document : packing_.Of(samples[row])) {
        RETURN_IF_ERROR(CopyDocument(document, at, rows));
        at += inputs_[document];
      }
      // Fillers are a document of their own.
      const int64_t end = static_cast<int64_t>(row + 1) * longest;
      for (int64_t i = at; i < end; ++i) rows.places()[i] = i - at;
    }
    return Arranged(std::move(rows));
  }

  Batch Blank(int64_t samples) const override {
    return Arranged(Fillers(samples, FixedLength().value_or(1)));
  }

 private:
  struct Rows {
    at::Tensor inputs, targets, positions;  // int64 [B, C]

    int64_t* tokens() const { return inputs.data_ptr<int64_t>(); }
    int64_t* wanted() const { return targets.data_ptr<int64_t>(); }
    int64_t* places() const { return positions.data_ptr<int64_t>(); }
  };

  // Returns the inputs of a document with this number of tokens.
  int64_t InputsOf(int64_t tokens) const { return inputs_are_targets_ ? tokens : tokens - 1; }

  // The length of all rows, if the model may take only one.
  std::optional<int64_t> FixedLength() const {
    if (spec_.documents) return std::nullopt;
    return spec_.context;
  }

  Rows Fillers(int64_t rows, int64_t length) const {
    return {at::zeros({rows, length}, at::kLong),
            at::full({rows, length}, *spec_.ignored, at::kLong),
            at::zeros({rows, length}, at::kLong)};
  }

  absl::Status CopyDocument(int64_t document, int64_t at, const Rows& rows) const {
    ASSIGN_OR_RETURN(const FileOffsets::Place place, documents_.Find(document));
    const DocumentsFile& file = files_[place.file];
    RETURN_IF_ERROR(file.CheckNotShrunk());
    const int64_t begin = file.Bound(place.within), end = file.Bound(place.within + 1);
    const bool inside = 0 <= begin && begin < end && end <= file.tokens();
    if (!inside || InputsOf(end - begin) != inputs_[document]) {
      return absl::FailedPreconditionError(
          absl::StrCat(file.path(), ": the bounds of document ", place.within, " have changed"));
    }
    // The tokens are checked again. The file may have been overwritten since Check.
    RETURN_IF_ERROR(file.CheckTokens(begin, end, spec_.vocab_size));
    const int64_t shift = inputs_are_targets_ ? 0 : 1;
    for (int64_t i = 0; i < inputs_[document]; ++i) {
      rows.tokens()[at + i] = file.Token(begin + i);
      const int64_t target = begin + i + shift;
      // The first token is never a target.
      if (target > begin && file.Trained(target) == 1) rows.wanted()[at + i] = file.Token(target);
      rows.places()[at + i] = i;
    }
    return absl::OkStatus();
  }

  // Returns the batch as the model takes it. A model that returns its loss has the targets among
  // its inputs.
  Batch Arranged(Rows rows) const {
    Batch batch = {.inputs = rows.inputs, .targets = rows.targets};
    if (spec_.kind == InputSpec::Kind::kTokens) {
      if (packed_ == Packed::kBestFit) batch.further = {rows.positions};
      return batch;
    }
    std::vector<at::Tensor> arrays(2, rows.inputs);
    arrays[spec_.counted->input] = rows.targets;
    batch.inputs = arrays[0];
    batch.targets = models::CountedTargets(spec_, arrays);
    batch.further = {arrays[1]};
    return batch;
  }

  const InputSpec spec_;
  const Packed packed_;
  // The model shifts its targets by one itself: the target at a place is the token at this place.
  const bool inputs_are_targets_;
  tokenizer::Source tokenizer_;
  std::string tokenized_;  // the first file
  std::vector<DocumentsFile> files_;
  std::vector<int64_t> inputs_;  // of each document
  FileOffsets documents_;
  FileOffsets tokens_;
  Packing packing_;
  Notes notes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDocuments(const std::vector<std::string>& paths,
                                                       Packed packed, const InputSpec& spec) {
  if (spec.kind == InputSpec::Kind::kRows || spec.vocab_size == 0) {
    return absl::InvalidArgumentError("the model does not take tokens, the data are documents");
  }
  if (packed == Packed::kBestFit && !spec.documents) {
    return absl::InvalidArgumentError(
        "this model cannot keep documents of one sample apart; expected `packing: none`, which "
        "makes a sample of each document (models that can: gpt2, llama, hf)");
  }
  if (!spec.ignored.has_value()) {
    return absl::InvalidArgumentError(
        "documents need a target that the loss ignores; set loss.cross_entropy.ignore_index");
  }
  if (paths.empty()) return absl::InvalidArgumentError("documents: expected at least one path");
  auto dataset = std::make_unique<DocumentsDataset>(spec, packed);
  for (const std::string& path : paths) RETURN_IF_ERROR(dataset->Add(path));
  dataset->Pack();
  if (dataset->size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.front(), ": there is no document in the files"));
  }
  return dataset;
}

}  // namespace muster::data
