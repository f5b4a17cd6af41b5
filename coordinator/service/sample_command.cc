#include "coordinator/service/sample_command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"
#include "common/tokenizer/bytes.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

constexpr char kNoPrompt[] = "the prompt is empty; expected one token or more";

absl::Status Invalid(const std::string& message) {
  return Refuse(absl::StatusCode::kInvalidArgument, "SAMPLE_INVALID", message, {{"field", "text"}});
}

absl::Status CheckSettings(const v1::SampleRequest& request) {
  const double temperature = request.temperature();
  if (request.has_temperature() && !(std::isfinite(temperature) && temperature > 0)) {
    return Invalid(absl::StrCat("temperature is ", temperature,
                                "; expected a finite number above 0, or none: then each new token "
                                "is the most likely one"));
  }
  if (request.has_top_k() && request.top_k() == 0) {
    return Invalid("top_k is 0; expected 1 or more, or none: then all tokens may be drawn");
  }
  if (request.has_top_k() && !request.has_temperature()) {
    return Invalid(
        "top_k has no effect without temperature, because then the most likely token is taken; set "
        "temperature, or leave top_k out");
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const v1::SampleCommand& sample, uint32_t vocabulary, uint32_t context) {
  if (sample.tokens().empty()) return Invalid(kNoPrompt);
  const auto& tokens = sample.tokens();
  const auto unknown = std::find_if(tokens.begin(), tokens.end(),
                                    [vocabulary](uint32_t token) { return token >= vocabulary; });
  if (unknown != tokens.end()) {
    return Invalid(absl::StrCat("token ", unknown - tokens.begin(), " of the prompt is ", *unknown,
                                "; expected 0 to ", vocabulary - 1, ", the model's vocabulary"));
  }
  const uint64_t size = static_cast<uint64_t>(tokens.size());
  if (size >= context || sample.max_tokens() > context - size) {
    return Invalid(
        absl::StrCat("the prompt has ", size, " tokens, and max_tokens is ",
                     std::max<uint32_t>(sample.max_tokens(), 1), "; expected at most ", context,
                     " together, the model's context; shorten the prompt, or lower max_tokens"));
  }
  return absl::OkStatus();
}

// Checks the prompt, and sets the number of new tokens if the request does not. Only the workers
// know the vocabulary and the context of a model from a folder.
absl::Status CheckRoom(const v1::ModelSpec& model, v1::SampleCommand* sample) {
  if (!jobspec::KnowsVocabulary(model)) {
    if (sample->tokens().empty() && sample->text().empty()) return Invalid(kNoPrompt);
    if (sample->max_tokens() == 0) sample->set_usual_tokens(kUsualNewTokens);
    return absl::OkStatus();
  }
  const bool gpt2 = model.has_gpt2();
  const uint32_t context = gpt2 ? model.gpt2().context() : model.llama().context();
  const uint32_t vocabulary = gpt2 ? model.gpt2().vocab_size() : model.llama().vocab_size();
  if (absl::Status bad = CheckTokens(*sample, vocabulary, context); !bad.ok()) return bad;
  if (sample->max_tokens() > 0) return absl::OkStatus();
  const auto room = context - static_cast<uint32_t>(sample->tokens_size());
  sample->set_max_tokens(std::min(kUsualNewTokens, room));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::SampleCommand> SampleCommandOf(const v1::SampleRequest& request,
                                                  const v1::ModelSpec& model,
                                                  const std::string& job_id) {
  if (!request.text().empty() && !request.tokens().empty()) {
    return Invalid("found a text and tokens; expected one of them as the prompt");
  }
  if (absl::Status bad = CheckSettings(request); !bad.ok()) return bad;
  v1::SampleCommand sample;
  *sample.mutable_tokens() = request.tokens();
  const bool bytes = model.tokenizer() == v1::ModelSpec::BYTES;
  if (!request.text().empty() && !bytes && (model.has_hf() || model.has_exported())) {
    sample.set_text(request.text());
  } else if (!request.text().empty()) {
    if (!bytes) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
                    absl::StrCat("the prompt is a text, but the model of job '", job_id,
                                 "' has no tokenizer; expected token ids, such as \"1 2 3\", or "
                                 "`model.tokenizer` in the job file"));
    }
    const std::vector<uint32_t> tokens = tokenizer::TokensOfBytes(request.text());
    sample.mutable_tokens()->Add(tokens.begin(), tokens.end());
  }
  sample.set_max_tokens(request.max_tokens());
  if (absl::Status bad = CheckRoom(model, &sample); !bad.ok()) return bad;
  if (request.has_temperature()) sample.set_temperature(request.temperature());
  if (request.has_top_k()) sample.set_top_k(request.top_k());
  sample.set_seed(request.seed());
  return sample;
}

}  // namespace muster::service
