// The conversion between texts and the tokens of a job's model: `model.tokenizer`, or the
// tokenizer.json in the model's folder. Opens the file when it is first needed.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_TEXT_CODER_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_TEXT_CODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/hugging_face/tokenizer.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::train {

// Threading: one thread.
class TextCoder {
 public:
  explicit TextCoder(const v1::ModelSpec& model);

  // Errors: NOT_FOUND if the model has no tokenizer, or a file that Muster does not read, whatever
  // the reason; INVALID_ARGUMENT if the text is not UTF-8; RESOURCE_EXHAUSTED if the tokenizer's
  // regular expressions take too many steps.
  absl::StatusOr<std::vector<int64_t>> TokensOf(const std::string& text);

  // Returns nullopt if the model has no tokenizer that Muster reads.
  std::optional<std::string> TextOf(const std::vector<int64_t>& tokens);

 private:
  const absl::StatusOr<tokenizer::Tokenizer>& Opened();

  const bool bytes_;
  const std::string path_;  // "" if the model has no folder
  std::optional<absl::StatusOr<tokenizer::Tokenizer>> opened_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_TEXT_CODER_H_
