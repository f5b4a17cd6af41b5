#include "common/printable/who_asked.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace muster {

std::string WhoAsked(const std::string& requester, const std::string& label) {
  if (label.empty() || label == requester) return requester;
  // Muster itself.
  if (requester.empty()) return label;
  return absl::StrCat(requester, " (label '", absl::Utf8SafeCEscape(label), "')");
}

}  // namespace muster
