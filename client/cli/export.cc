#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/api/cancellation.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/python/run_python.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct GgufOptions : CommonOptions {
  std::string folder;
  std::string out;
  std::string type = "f16";
  std::string pre;
  bool overwrite = false;
};

ExitCode ExportGguf(Console* console, const GgufOptions& options) {
  client::Cancellation interrupted;
  const Interrupts::Listener listener(&console->interrupts, [&](int) { interrupted.Cancel(); });
  std::vector<std::string> arguments = {absl::StrCat("--out=", options.out),
                                        absl::StrCat("--type=", options.type)};
  if (!options.pre.empty()) arguments.push_back(absl::StrCat("--pre=", options.pre));
  if (options.overwrite) arguments.push_back("--overwrite");
  arguments.insert(arguments.end(), {"--", options.folder});
  const auto made = RunPython(*console, {"muster.gguf", "gguf safetensors", arguments},
                              [&] { return interrupted.cancelled(); });
  if (absl::IsCancelled(made.status())) return FailWith(console, "interrupted", kInterrupted);
  if (!made.ok()) {
    return FailWith(console, Message(made.status()),
                    absl::IsInvalidArgument(made.status()) ? kUsage : kOtherError);
  }
  if (IsDocument(options.output)) {
    console->out << Document(made->dump(2) + "\n", options.output);
    return kDone;
  }
  for (const std::string& note : made->value("notes", std::vector<std::string>())) {
    console->out << note << "\n";
  }
  console->out << options.out << "\n";
  return kDone;
}

void AddGguf(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<GgufOptions>();
  CLI::App* command = group->add_subcommand(
      "gguf",
      "A GGUF file, for llama.cpp, of a model folder of Hugging Face (the result of a job, for "
      "example); needs Python with the packages muster, gguf and safetensors");
  command->add_option("FOLDER", options->folder, "The model's folder")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--out", options->out, "The file")->required()->type_name("FILE");
  command
      ->add_option("--type", options->type,
                   "The type of matrices (default: f16); vectors are float32")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command
      ->add_option("--pre", options->pre,
                   "llama.cpp's name for how the tokenizer splits texts, such as qwen2; without "
                   "it, tokenizer.json says")
      ->type_name("NAME");
  command->add_flag("--overwrite", options->overwrite, "Replace the file");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = ExportGguf(console, *options); });
}

}  // namespace

void AddExport(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group =
      app->add_subcommand("export", "Write a model for other programs; needs no coordinator");
  group->require_subcommand(1);
  AddGguf(group, console, code);
}

}  // namespace muster::cli
