#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/steer.h"
#include "client/cli/terminal/operation_text.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"

namespace muster::cli {
namespace {

struct SampleOptions : SteeringOptions {
  std::string prompt;
  std::vector<uint32_t> tokens;
  uint32_t max_tokens = 0;
  std::optional<double> temperature;
  std::optional<uint32_t> top_k;
  uint64_t seed = 0;
};

// Parses "1 2 3"; nothing for another text.
std::optional<std::vector<uint32_t>> TokenIds(const std::string& text) {
  std::vector<uint32_t> ids;
  for (const auto word : absl::StrSplit(text, absl::ByAnyChar(" ,\t\n"), absl::SkipEmpty())) {
    uint32_t id = 0;
    if (!absl::ascii_isdigit(word[0]) || !absl::SimpleAtoi(word, &id)) return std::nullopt;
    ids.push_back(id);
  }
  return ids;
}

v1::SampleRequest RequestOf(const SampleOptions& options, const v1::ModelSpec& model) {
  v1::SampleRequest request;
  const bool has_tokenizer =
      model.has_hf() || model.tokenizer() != v1::ModelSpec::TOKENIZER_UNSPECIFIED;
  const auto ids = has_tokenizer ? std::nullopt : TokenIds(options.prompt);
  if (!options.tokens.empty()) {
    request.mutable_tokens()->Add(options.tokens.begin(), options.tokens.end());
  } else if (ids.has_value()) {
    request.mutable_tokens()->Add(ids->begin(), ids->end());
  } else {
    // The coordinator says what is missing if the job has no tokenizer.
    request.set_text(options.prompt);
  }
  request.set_max_tokens(options.max_tokens);
  if (options.temperature.has_value()) request.set_temperature(*options.temperature);
  if (options.top_k.has_value()) request.set_top_k(*options.top_k);
  request.set_seed(options.seed);
  return request;
}

// Prints the new text, or the new tokens without a text, to stdout, and all else to stderr. The
// document, if requested, is the operation.
ExitCode ShowSample(Console* console, const SampleOptions& options,
                    const v1::Operation& operation) {
  if (IsDocument(options.output)) {
    console->out << Document(operation, options.output);
    return operation.has_error() ? kOtherError : kDone;
  }
  if (operation.has_error()) return FailWith(console, OperationLine(operation));
  const v1::SampleResult& sample = operation.result().sample();
  console->err << sample.tokens_size() << " tokens after step " << sample.step() << ":"
               << std::endl;
  console->out << (sample.text().empty() ? absl::StrJoin(sample.tokens(), " ") : sample.text())
               << "\n";
  return kDone;
}

absl::StatusOr<ExitCode> Sample(Console* console, client::MusterClient& client,
                                const SampleOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(options.job));
  v1::SampleRequest request = RequestOf(options, job.spec().model());
  request.set_job_id(options.job);
  ASSIGN_OR_RETURN(v1::Operation operation, client.Steer(&v1::ControlService::Stub::Sample, request,
                                                         {.retry = {.retry_for = options.retry_for},
                                                          .at_step = options.at_step,
                                                          .requested_by = Requester(console)}));
  if (!options.wait) return ShowOperation(console, client, options, operation);
  const ExitCode code = AwaitEnd(console, client, options, &operation);
  return code == kDone ? ShowSample(console, options, operation) : code;
}

}  // namespace

void AddSample(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SampleOptions>();
  CLI::App* command = app->add_subcommand(
      "sample",
      "Continue a prompt with the model (gpt2, llama, hf or exported) of a running or paused job "
      "as "
      "it is after its current step, without effect on its training, and print what follows the "
      "prompt");
  command->add_option("JOB", options->job, "The job's id")->required();
  CLI::Option* const prompt =
      command->add_option("--prompt", options->prompt,
                          "A text, if the model has a tokenizer (model.hf, model.tokenizer); "
                          "otherwise token ids, such as \"1 2 3\"");
  command->add_option("--tokens", options->tokens, "Token ids, such as 1,2,3, in place of --prompt")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(prompt)
      ->type_name("IDS");
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "New tokens; the default is 64, or as many as fit into the model's context")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  command
      ->add_option("--temperature", options->temperature,
                   "Draw each token; the lower, the more often a likely one. Without it, each is "
                   "the most likely one")
      ->type_name("T");
  command
      ->add_option("--top-k", options->top_k,
                   "Draw only the K most likely tokens; only with --temperature")
      ->type_name("K");
  command->add_option("--seed", options->seed, "The seed of the random draws; the default is 0")
      ->type_name("S");
  options->wait = true;
  command->add_flag_callback(
      "--no-wait", [options] { options->wait = false; },
      "Return at once with the operation's name; `muster operation JOB/N --wait -o json` has the "
      "sample");
  AddDurationOption(command, "--timeout", &options->timeout,
                    "Wait at most this long (exit code 101)");
  AddAtStepOption(command, &options->at_step);
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] {
    if (prompt->empty() && options->tokens.empty()) {
      *code = FailWith(console, "--prompt is required, or --tokens", kUsage);
      return;
    }
    *code = ValidUtf8Prefix(options->prompt) == options->prompt.size()
                ? Call(console, *options, Sample)
                : FailWith(console, "--prompt is not valid UTF-8; expected a text, or token ids",
                           kUsage);
  });
}

}  // namespace muster::cli
