#include "worker/train/ranks/agreed_status.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"

namespace muster::train {
namespace {

// Marks an error.
constexpr char kAgreed[] = "muster/agreed";

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
  const auto texts = checkpoint::GatherTexts(communicator, TextOf(mine), what, 0);
  if (!texts.ok()) {
    return mine.ok() ? texts.status() : Annotate(mine, absl::StrCat("rank ", communicator.rank()));
  }
  const bool same = std::all_of(texts->begin(), texts->end(),
                                [&](const std::string& text) { return text == texts->front(); });
  if (same) return MarkAgreed(StatusIn(texts->front()));
  absl::StatusCode code = mine.code();
  Problems problems;
  for (size_t rank = 0; rank < texts->size(); ++rank) {
    const absl::Status status = StatusIn((*texts)[rank]);
    if (status.ok()) continue;
    if (code == absl::StatusCode::kOk) code = status.code();
    problems.Add(absl::StrCat("rank ", rank, ": ", Message(status)));
  }
  const absl::Status agreed(code, problems.Text());
  return MarkAgreed(mine.ok() ? ErrorOfOthers(agreed) : agreed);
}

absl::Status ErrorOfOthers(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return error;
    default:
      return absl::AbortedError(Message(error));
  }
}

bool IsAgreed(const absl::Status& error) { return error.GetPayload(kAgreed).has_value(); }

absl::Status MarkAgreed(absl::Status error) {
  if (!error.ok()) error.SetPayload(kAgreed, absl::Cord());
  return error;
}

}  // namespace muster::train
