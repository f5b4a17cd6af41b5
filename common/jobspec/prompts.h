// The prompts of a stage `predict` with `generate` (docs/how-to/generate.md): lists of token ids in
// the job, or lists of token ids and texts in a JSON file.
#ifndef MUSTER_COMMON_JOBSPEC_PROMPTS_H_
#define MUSTER_COMMON_JOBSPEC_PROMPTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

using TokenLists = std::vector<std::vector<int64_t>>;
// Token ids, or a text for the model's tokenizer.
using Prompt = std::variant<std::vector<int64_t>, std::string>;
using Prompts = std::vector<Prompt>;

// The largest size of a file with prompts: some millions of tokens.
inline constexpr uint64_t kMostPromptBytes = uint64_t{16} << 20;

// Parses a text such as "[[1, 2], [3]]" or "[[1, 2], \"Once\"]". INVALID_ARGUMENT: not JSON, or not
// a list of texts and lists of token ids (0 to 2^32 - 1); the message says where: "prompts[3]:
// token 1: ...".
absl::StatusOr<Prompts> ParsePrompts(const std::string& text);

// Parses a file as ParsePrompts does. INVALID_ARGUMENT also if the file is larger than
// kMostPromptBytes; NOT_FOUND etc. if it cannot be read. Errors name the file.
absl::StatusOr<Prompts> ReadPrompts(const std::string& path);

// The prompts in the job itself.
TokenLists PromptsOf(const v1::GenerateSpec& generate);

// Checks prompts by the job alone. There must be a prompt, and none may be empty. Each token must
// be in the model's vocabulary. Each prompt with its new tokens must fit into the model's context.
// A text needs a tokenizer. INVALID_ARGUMENT with the first problems, each with the prompt's
// number. Models other than gpt2 and llama are not checked. The worker checks all again
// (models::CheckGeneration).
absl::Status CheckPrompts(const Prompts& prompts, const v1::ModelSpec& model,
                          const v1::GenerateSpec& generate);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_PROMPTS_H_
