#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/api/cancellation.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/data/documents_text.h"
#include "client/cli/data/pack.h"
#include "client/cli/data/record_options.h"
#include "client/cli/python/run_python.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;

// Prints why no files were made.
ExitCode Refuse(Console* console, const absl::Status& status) {
  if (absl::IsCancelled(status)) return FailWith(console, "interrupted", kInterrupted);
  return FailWith(console, Message(status), absl::IsInvalidArgument(status) ? kUsage : kOtherError);
}

constexpr char kBytes[] = "bytes";
constexpr char kModule[] = "muster.data";
constexpr char kPackages[] = "tokenizers";

Trained FormOf(const Console& console) {
  const bool colours = console.out_is_terminal && console.environment("NO_COLOR").empty();
  return colours ? Trained::kGreen : Trained::kSigns;
}

struct DataPackOptions : CommonOptions {
  PackOptions pack;
  std::string tokenizer;
  std::optional<std::string> separator;
  RecordOptions records;

  bool documents() const { return absl::EndsWith(pack.out, ".safetensors"); }
};

// The arguments of `python -m muster.data` (client/python/muster/data/__main__.py).
std::vector<std::string> Arguments(const DataPackOptions& options) {
  std::vector<std::string> arguments = {options.documents() ? "documents" : "pack",
                                        absl::StrCat("--tokenizer=", options.tokenizer),
                                        absl::StrCat("--out=", options.pack.out)};
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) arguments.push_back(absl::StrCat("--", name, "=", value));
  };
  if (options.pack.split.has_value()) add("split", absl::StrCat(*options.pack.split));
  add("out-rest", options.pack.out_rest);
  if (options.separator.has_value()) {
    arguments.push_back(absl::StrCat("--separator=", *options.separator));
  }
  for (std::string& argument : options.records.Arguments())
    arguments.push_back(std::move(argument));
  arguments.push_back("--");
  arguments.insert(arguments.end(), options.pack.inputs.begin(), options.pack.inputs.end());
  return arguments;
}

absl::Status CheckForm(const DataPackOptions& options) {
  const bool bytes = options.tokenizer == kBytes;
  if (options.documents()) {
    if (!bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--tokenizer bytes makes plain tokens; expected an --out without the ending .safetensors");
  }
  if (const std::string name = options.records.First(); !name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name,
                     " is for files of documents: expected an --out with the ending "
                     ".safetensors, found ",
                     options.pack.out));
  }
  if (bytes && options.separator.has_value()) {
    return absl::InvalidArgumentError("--separator: only with a tokenizer's file, not with bytes");
  }
  for (const std::string& input : options.pack.inputs) {
    for (const char* ending :
         {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather"}) {
      if (bytes || !absl::EndsWith(absl::AsciiStrToLower(input), ending)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          input,
          " has records; expected an --out with the ending .safetensors, which makes a file "
          "of documents, found ",
          options.pack.out));
    }
  }
  return absl::OkStatus();
}

ordered_json JsonOf(const std::vector<PackedFile>& packed) {
  ordered_json json = {{"files", ordered_json::array()}};
  for (const PackedFile& file : packed) {
    json["files"].push_back({{"path", file.path},
                             {"tokens", file.tokens},
                             {"dtype", file.dtype},
                             {"unigram_entropy", file.unigram_entropy}});
  }
  return json;
}

absl::StatusOr<ordered_json> MakeFiles(Console* console, const DataPackOptions& options,
                                       const std::function<bool()>& interrupted) {
  const bool bytes = options.tokenizer == kBytes;
  RETURN_IF_ERROR(CheckForm(options));
  RETURN_IF_ERROR(CheckPackInputs(options.pack.inputs, bytes ? "" : options.tokenizer));
  if (bytes) {
    ASSIGN_OR_RETURN(const auto packed, Pack(options.pack, interrupted));
    return JsonOf(packed);
  }
  ASSIGN_OR_RETURN(const auto made,
                   RunPython(*console, {kModule, kPackages, Arguments(options)}, interrupted));
  return ordered_json(made);
}

ExitCode DataPack(Console* console, const DataPackOptions& options) {
  client::Cancellation interrupted;
  const Interrupts::Listener listener(&console->interrupts, [&](int) { interrupted.Cancel(); });
  const auto made = MakeFiles(console, options, [&] { return interrupted.cancelled(); });
  if (!made.ok()) return Refuse(console, made.status());
  if (IsDocument(options.output)) {
    console->out << Document(made->dump(2) + "\n", options.output);
  } else if (options.documents()) {
    PrintReport(*made, &console->out);
    PrintDocuments((*made)["documents"], FormOf(*console), &console->out);
  } else {
    for (const auto& file : (*made)["files"]) {
      console->out << file.value("path", "") << ": " << file.value("tokens", uint64_t{0})
                   << " tokens (" << file.value("dtype", "") << "), unigram entropy "
                   << absl::StrFormat("%.4f", file.value("unigram_entropy", 0.0))
                   << " nats per token\n";
    }
  }
  return kDone;
}

void AddDataPack(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<DataPackOptions>();
  CLI::App* command = group->add_subcommand(
      "pack",
      "Make training data. With an --out that ends with .safetensors: documents of records "
      "(conversations, prompts, texts), with a mark for each token that is trained. Otherwise: "
      "plain tokens of any files, one after the other");
  command->add_option("INPUT", options->pack.inputs, "Files to read")->required();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes: every byte is a token, 0 to 255. Or a model folder of Hugging Face, or "
                   "a tokenizer.json; this needs Python with the packages muster and tokenizers")
      ->required()
      ->check([](const std::string& text) {
        return text == kBytes || CLI::ExistingPath(text).empty()
                   ? std::string()
                   : absl::StrCat("'", text,
                                  "' is no file; expected bytes, or the path of a tokenizer.json "
                                  "or of its folder");
      })
      ->type_name("bytes|PATH");
  command
      ->add_option("--separator", options->separator,
                   "A token of the tokenizer's file that is added after each input, such as "
                   "<|endoftext|>. For documents: the token after a text, in place of the "
                   "tokenizer's end token")
      ->type_name("TOKEN");
  command->add_option("--out", options->pack.out, "The file to make")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--split", options->pack.split,
                   "Only this part of the tokens, or of the records, such as 0.9; the others go to "
                   "--out-rest")
      ->type_name("PART");
  command->add_option("--out-rest", options->pack.out_rest, "The file of the rest")
      ->type_name("FILE");
  options->records.AddTo(command);
  options->records.Add(command, "context",
                       "The context of the model: a document has at most one token more", "TOKENS");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = DataPack(console, *options); });
}

struct DataShowOptions : CommonOptions {
  std::string path;
  std::vector<std::string> documents;
  int count = 5;
};

ExitCode DataShow(Console* console, const DataShowOptions& options) {
  client::Cancellation interrupted;
  const Interrupts::Listener listener(&console->interrupts, [&](int) { interrupted.Cancel(); });
  std::vector<std::string> arguments = {"show", absl::StrCat("--count=", options.count)};
  for (const std::string& number : options.documents) {
    arguments.push_back(absl::StrCat("--document=", number));
  }
  arguments.insert(arguments.end(), {"--", options.path});
  const auto found =
      RunPython(*console, {kModule, kPackages, arguments}, [&] { return interrupted.cancelled(); });
  if (!found.ok()) return Refuse(console, found.status());
  if (IsDocument(options.output)) {
    console->out << Document(found->dump(2) + "\n", options.output);
  } else {
    PrintDocuments((*found)["documents"], FormOf(*console), &console->out);
  }
  return kDone;
}

void AddDataShow(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<DataShowOptions>();
  CLI::App* command = group->add_subcommand(
      "show", "Show documents of a file that `data pack` has made, with what is trained");
  command->add_option("FILE", options->path, "The file of documents")->required();
  command->add_option("DOCUMENT", options->documents,
                      "Numbers of documents, from 0; without them, some by chance");
  command->add_option("--count", options->count, "How many by chance")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = DataShow(console, *options); });
}

}  // namespace

void AddData(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group = app->add_subcommand("data", "Make training data; needs no coordinator");
  group->require_subcommand(1);
  AddDataPack(group, console, code);
  AddDataShow(group, console, code);
}

}  // namespace muster::cli
