// A file of documents (docs/reference/data.md, "Documents"): tokens, a mark for each token that is
// trained, and the bounds of the documents, in a safetensors file that is mapped into memory.
#ifndef MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_FILE_H_
#define MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"
#include "common/tokenizer/source.h"

namespace muster::data {

// Threading: const.
class DocumentsFile {
 public:
  // Errors: those of safetensors::File::Open. INVALID_ARGUMENT: another kind of file, another
  // version, or arrays whose types or sizes do not fit. The contents are not read.
  static absl::StatusOr<DocumentsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  // The smallest vocabulary that has all tokens of the tokenizer.
  int64_t vocab_size() const { return vocab_size_; }
  const tokenizer::Source& tokenizer() const { return tokenizer_; }

  // The first token of a document, or, for `documents()`, the end of the last one.
  int64_t Bound(int64_t document) const;
  // The token at an index below tokens().
  int64_t Token(int64_t index) const;
  // 1: the token is a target. 0: the token is only an input. Other values are damage.
  uint8_t Trained(int64_t index) const { return trained_[index]; }
  // Whether a token of the document, besides its first one, is trained.
  bool HasTarget(int64_t document) const;
  // The offset of a token in the file, for errors.
  int64_t OffsetOf(int64_t token) const;

  // FAILED_PRECONDITION: the file has been shortened.
  absl::Status CheckNotShrunk() const { return file_.mapped().CheckNotShrunk(); }
  // INVALID_ARGUMENT: bounds that do not rise by at least 2 from 0 to tokens().
  absl::Status CheckBounds() const;
  // INVALID_ARGUMENT: among the tokens from `begin` to before `end` is one that is not below
  // `vocab_size`, or a mark that is neither 0 nor 1.
  absl::Status CheckTokens(int64_t begin, int64_t end, int64_t vocab_size) const;

 private:
  explicit DocumentsFile(safetensors::File file) : file_(std::move(file)) {}

  safetensors::File file_;
  tokenizer::Source tokenizer_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t vocab_size_ = 0;
  int64_t width_ = 0;  // bytes of a token: 2 or 4
  // In the mapped file; may be unaligned.
  const uint8_t* bounds_ = nullptr;
  const uint8_t* numbers_ = nullptr;
  const uint8_t* trained_ = nullptr;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_FILE_H_
