#include "client/cli/data/documents_text.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/terminal/escaped_stream.h"

namespace muster::cli {
namespace {

using nlohmann::json;

int64_t Number(const json& object, const char* key) { return object.value(key, int64_t{0}); }
std::string Text(const json& object, const char* key) { return object.value(key, ""); }

std::vector<std::string> Texts(const json& object, const char* key) {
  return object.value(key, std::vector<std::string>());
}

std::string Records(int64_t count) {
  return count == 1 ? "1 record" : absl::StrCat(count, " records");
}

}  // namespace

void PrintReport(const json& report, std::ostream* out) {
  for (const json& file : report.value("files", json::array())) {
    const int64_t tokens = Number(file, "tokens"), trained = Number(file, "trained");
    *out << Text(file, "path") << ": " << Number(file, "documents") << " documents, " << tokens
         << " tokens (" << Text(report, "dtype") << "), " << trained
         << absl::StrFormat(" trained (%.1f%%)\n", tokens == 0 ? 0 : 100.0 * trained / tokens);
  }
  *out << Records(Number(report, "records")) << " of the shape `" << Text(report, "shape")
       << "`; trained: " << Text(report, "train");
  if (const auto ignored = Texts(report, "ignored"); !ignored.empty()) {
    *out << "; not used: " << absl::StrJoin(ignored, ", ");
  }
  *out << "\nlongest: " << Number(report, "longest") << " tokens (" << Text(report, "longest_at")
       << ")\n";
  if (const int64_t longer = Number(report, "longer"); longer > 0) {
    *out << Records(longer)
         << " longer than the context; trained tokens left out: " << Number(report, "lost") << "\n";
  }
  if (const int64_t untrained = Number(report, "untrained"); untrained > 0) {
    *out << Records(untrained) << " left out, without a trained token:\n";
    const auto first = Texts(report, "untrained_first");
    for (const std::string& one : first) *out << "  " << one << "\n";
    if (untrained > static_cast<int64_t>(first.size())) *out << "  ...\n";
  }
  if (const int64_t endless = Number(report, "endless"); endless > 0) {
    *out << endless
         << " trained parts end without a token that ends a turn; from them a model does not "
            "learn to stop\n";
  }
  if (const int64_t empty = Number(report, "empty"); empty > 0) {
    *out << empty << " trained turns have no text, so a model learns to say nothing; the first: "
         << Text(report, "empty_at") << "\n";
  }
  if (const int64_t joined = Number(report, "joined"); joined > 0) {
    *out << joined
         << " prompts are joined to their completions as they are, without the chat template; "
            "lists of messages would use it\n";
  }
  if (const int64_t left_out = Number(report, "left_out"); left_out > 0) {
    *out << left_out << " messages are not in the texts, because the chat template does not write "
         << "them; the first: " << Text(report, "left_out_at") << "\n";
  }
  if (const std::string date = Text(report, "date"); !date.empty()) {
    *out << "the chat template has written the date " << date << " into the texts\n";
  }
  if (const int64_t continued = Number(report, "continued"); continued > 0) {
    *out << Records(continued) << " were already done by a run that had not ended\n";
  }
}

void PrintDocuments(const json& documents, Trained trained, std::ostream* out) {
  for (const json& document : documents) {
    int64_t tokens = 0, targets = 0;
    for (const json& part : document["parts"]) {
      tokens += Number(part, "tokens");
      if (part.value("trained", false)) targets += Number(part, "tokens");
    }
    *out << "\ndocument " << Number(document, "number") << ": " << tokens << " tokens, " << targets
         << " trained " << (trained == Trained::kGreen ? "(green)" : "(between \u27e6 and \u27e7)")
         << "\n";
    for (const json& part : document["parts"]) {
      const std::string text = Text(part, "text");
      if (!part.value("trained", false)) {
        *out << text;
      } else if (trained == Trained::kGreen) {
        *out << StartGreen << text << EndGreen;
      } else {
        *out << "\u27e6" << text << "\u27e7";
      }
    }
    *out << "\n";
  }
}

}  // namespace muster::cli
