#include "client/cli/data/record_options.h"

#include "absl/strings/str_cat.h"

namespace muster::cli {

void RecordOptions::Add(CLI::App* command, const std::string& name, const std::string& help,
                        const std::string& type) {
  command->add_option("--" + name, given_[name], help)
      ->type_name(type)
      ->allow_extra_args(false)
      ->group("Documents");
}

void RecordOptions::AddTo(CLI::App* command) {
  Add(command, "shape", "How records are read; without it, the first record says",
      "messages|sharegpt|prompt|alpaca|text");
  Add(command, "train",
      "What is trained: the turns of the assistant, its last turn, what comes after the prompt, "
      "or everything",
      "assistant|last|completion|all");
  Add(command, "column", "The name of a field, such as text=body; may be repeated", "NAME=FIELD");
  Add(command, "chat-template", "A file with a chat template, in place of the tokenizer's", "FILE");
  Add(command, "longer",
      "What becomes of longer documents. The default is cut, and split for the shape text",
      "cut|split|drop");
  Add(command, "allow-untrained",
      "The share of records without a trained token that may be left out (default: 0.01)", "SHARE");
  Add(command, "processes", "Processes that make tokens (default: one for each processor)", "N");
}

std::string RecordOptions::First() const {
  for (const auto& [name, values] : given_) {
    if (!values.empty()) return name;
  }
  return "";
}

std::vector<std::string> RecordOptions::Arguments() const {
  std::vector<std::string> arguments;
  for (const auto& [name, values] : given_) {
    for (const std::string& value : values) {
      arguments.push_back(absl::StrCat("--", name, "=", value));
    }
  }
  return arguments;
}

}  // namespace muster::cli
