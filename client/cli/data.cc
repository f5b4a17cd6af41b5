#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/api/cancellation.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/pack.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

// Prints why no files were made.
ExitCode Refuse(Console* console, const absl::Status& status) {
  if (absl::IsCancelled(status)) return FailWith(console, "interrupted", kInterrupted);
  return FailWith(console, Message(status), absl::IsInvalidArgument(status) ? kUsage : kOtherError);
}

constexpr char kBytes[] = "bytes";

struct DataPackOptions : CommonOptions {
  PackOptions pack;
  TokenizerOptions tokenizer;
};

absl::StatusOr<std::vector<PackedFile>> MakeTokens(const DataPackOptions& options,
                                                   const std::function<bool()>& interrupted) {
  const bool bytes = options.tokenizer.tokenizer == kBytes;
  RETURN_IF_ERROR(CheckPackInputs(options.pack.inputs, bytes ? "" : options.tokenizer.tokenizer));
  if (!bytes) {
    return PackWithTokenizer(options.pack, options.tokenizer, interrupted);
  }
  if (!options.tokenizer.separator.empty()) {
    return absl::InvalidArgumentError("--separator: only with a tokenizer's file, not with bytes");
  }
  return Pack(options.pack, interrupted);
}

ExitCode DataPack(Console* console, const DataPackOptions& options) {
  client::Cancellation interrupted;
  const Interrupts::Listener listener(&console->interrupts, [&](int) { interrupted.Cancel(); });
  const auto packed = MakeTokens(options, [&] { return interrupted.cancelled(); });
  if (!packed.ok()) return Refuse(console, packed.status());
  if (IsDocument(options.output)) {
    nlohmann::ordered_json json = {{"files", nlohmann::ordered_json::array()}};
    for (const PackedFile& file : *packed) {
      json["files"].push_back({{"path", file.path},
                               {"tokens", file.tokens},
                               {"dtype", file.dtype},
                               {"unigram_entropy", file.unigram_entropy}});
    }
    console->out << Document(json.dump(2) + "\n", options.output);
  } else {
    for (const PackedFile& file : *packed) {
      console->out << file.path << ": " << file.tokens << " tokens (" << file.dtype
                   << "), unigram entropy " << absl::StrFormat("%.4f", file.unigram_entropy)
                   << " nats per token\n";
    }
  }
  return kDone;
}

void AddPack(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<DataPackOptions>();
  if (const std::string python = console->environment("MUSTER_PYTHON"); !python.empty()) {
    options->tokenizer.python = python;
  }
  CLI::App* command = group->add_subcommand(
      "pack",
      "Make a token file of any files, one after the other: uint16, little endian (uint32 "
      "for a tokenizer that has a token with the number 65536 or a higher one)");
  command->add_option("INPUT", options->pack.inputs, "Files to read")->required();
  command
      ->add_option("--tokenizer", options->tokenizer.tokenizer,
                   "bytes: every byte is a token, 0 to 255. Or a tokenizer.json of Hugging Face, "
                   "for texts in UTF-8; this needs Python with the packages muster and tokenizers")
      ->required()
      ->check([](const std::string& text) {
        return text == kBytes || CLI::ExistingFile(text).empty()
                   ? std::string()
                   : absl::StrCat("'", text,
                                  "' is no file; expected bytes, or the path of a tokenizer.json");
      })
      ->type_name("bytes|FILE");
  command
      ->add_option("--separator", options->tokenizer.separator,
                   "A token of the tokenizer's file that is added after each input, such as "
                   "<|endoftext|>")
      ->type_name("TOKEN");
  command->add_option("--out", options->pack.out, "The token file")->required()->type_name("FILE");
  command
      ->add_option("--split", options->pack.split,
                   "Only this part of the tokens, such as 0.9; the others go to --out-rest")
      ->type_name("PART");
  command->add_option("--out-rest", options->pack.out_rest, "The token file of the rest")
      ->type_name("FILE");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = DataPack(console, *options); });
}

}  // namespace

void AddData(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group = app->add_subcommand("data", "Make training data; needs no coordinator");
  group->require_subcommand(1);
  AddPack(group, console, code);
}

}  // namespace muster::cli
