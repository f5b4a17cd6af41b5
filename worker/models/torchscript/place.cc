#include "worker/models/torchscript/place.h"

#include <exception>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace muster::models {
namespace {

// Returns the place in the source that the module was made from, if the file contains it.
std::optional<torch::jit::SourceRange> Original(const torch::jit::SourceRange& range) {
  try {
    return range.findSourceRangeThatGenerated();
  } catch (const std::exception&) {
    return std::nullopt;  // this part of the file is damaged
  }
}

}  // namespace

std::string PlaceOf(const torch::jit::SourceRange& range) {
  const auto place = Original(range).value_or(range).file_line_col();
  if (!place.has_value()) return "";
  const auto& [file, line, column] = *place;
  return absl::StrCat(" (line ", line, " of ", Quotable(file), ")");
}

std::string Quotable(const std::string& text) {
  constexpr size_t kShown = 200;
  // The end of a path is more useful than its beginning.
  const std::string shown =
      text.size() <= kShown ? text : absl::StrCat("...", text.substr(text.size() - kShown));
  return absl::CHexEscape(shown);
}

}  // namespace muster::models
