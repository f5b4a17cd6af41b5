#include "worker/train/agreed_status.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"

namespace muster::train {
namespace {

// An error as text: its code and its message; empty for OK.
std::string TextOf(const absl::Status& status) {
  if (status.ok()) return "";
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status StatusIn(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code)) code = static_cast<int>(absl::StatusCode::kInternal);
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

}  // namespace

absl::Status AgreedStatus(const absl::Status& mine, const char* what,
                          comm::Communicator& communicator) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   checkpoint::GatherTexts(communicator, TextOf(mine), what, 0));
  const bool same = std::all_of(texts.begin(), texts.end(),
                                [&](const std::string& text) { return text == texts.front(); });
  if (same) return StatusIn(texts.front());
  absl::StatusCode code = absl::StatusCode::kOk;
  Problems problems;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const absl::Status status = StatusIn(texts[rank]);
    if (status.ok()) continue;
    if (code == absl::StatusCode::kOk) code = status.code();
    problems.Add(absl::StrCat("rank ", rank, ": ", Message(status)));
  }
  return absl::Status(code, problems.Text());
}

}  // namespace muster::train
