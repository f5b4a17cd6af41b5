#include "worker/train/ranks/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

using jobspec::Line;

// The most ranks that an error names.
constexpr size_t kNamed = 3;

// Returns one text line for each of `lines`. Paths and values contain no line break and no tab.
std::string TextOf(const std::vector<Line>& lines) {
  return absl::StrJoin(lines, "\n", [](std::string* out, const Line& line) {
    absl::StrAppend(out, line.path, "\t", line.value);
  });
}

std::vector<Line> LinesIn(const std::string& text) {
  std::vector<Line> lines;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    lines.push_back({parts.first, parts.second});
  }
  return lines;
}

bool Has(const std::vector<Line>& lines, const std::string& path) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const Line& line) { return line.path == path; });
}

// The payload that marks an agreed error.
constexpr char kAgreed[] = "muster/agreed";

// Returns an error as text: the code and the message; "" for OK.
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

std::string NameDifference(const std::vector<Line>& of_rank_0, const std::vector<Line>& others,
                           int rank) {
  const auto said = [rank](const std::string& path, const std::string& first,
                           const std::string& second) {
    return absl::StrCat(path, ": rank 0 has ", first, ", rank ", rank, " has ", second);
  };
  const size_t common = std::min(of_rank_0.size(), others.size());
  size_t at = 0;
  while (at < common && of_rank_0[at] == others[at]) ++at;
  const Line* first = at < of_rank_0.size() ? &of_rank_0[at] : nullptr;
  const Line* second = at < others.size() ? &others[at] : nullptr;
  if (first == nullptr && second == nullptr) return "";
  if (first != nullptr && second != nullptr && first->path == second->path) {
    return said(first->path, first->value, second->value);
  }
  if (first != nullptr && !Has(others, first->path)) {
    return said(first->path, first->value, "nothing");
  }
  if (second != nullptr && !Has(of_rank_0, second->path)) {
    return said(second->path, "nothing", second->value);
  }
  return absl::StrCat("the order: rank 0 has ", first == nullptr ? "nothing" : first->path,
                      " where rank ", rank, " has ", second == nullptr ? "nothing" : second->path);
}

absl::Status AgreeOn(const std::string& what, const std::vector<Line>& lines,
                     comm::Communicator* communicator) {
  const int world_size = communicator->world_size();
  const std::string text = TextOf(lines);
  const at::Tensor mine = device::HostTensor(
      std::array<int64_t, 2>{static_cast<int64_t>(XXH3_64bits(text.data(), text.size())),
                             static_cast<int64_t>(text.size())});
  const at::Tensor all = at::empty({2 * world_size}, at::kLong);
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {.what = "what the ranks agree on"})->Wait());
  const auto said = device::HostValues<int64_t>(all);
  bool same = true;
  for (int rank = 1; rank < world_size; ++rank) {
    same = same && said[2 * rank] == said[0] && said[2 * rank + 1] == said[1];
  }
  if (same) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto texts,
                   checkpoint::GatherTexts(*communicator, text, "what the ranks differ in", 0));
  const std::vector<Line> of_rank_0 = LinesIn(texts[0]);
  std::vector<std::string> named;
  int more = 0;
  for (int rank = 1; rank < world_size; ++rank) {
    if (texts[rank] == texts[0]) continue;
    if (named.size() == kNamed) {
      ++more;
    } else {
      named.push_back(NameDifference(of_rank_0, LinesIn(texts[rank]), rank));
    }
  }
  if (named.empty()) {
    return absl::InternalError(
        absl::StrCat("the ranks' hashes of ", what, " differ, but their texts do not"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks differ in ", what, ": ", absl::StrJoin(named, "; "),
                   more == 0 ? "" : absl::StrCat("; and ", more, " more")));
}

std::vector<Line> LinesOf(const models::Model& model) {
  std::vector<Line> lines;
  const auto describe = [](const at::Tensor& tensor) {
    return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "] ",
                        c10::toString(tensor.scalar_type()));
  };
  for (const auto& [name, tensor] : model.Parameters()) {
    lines.push_back({absl::StrCat("parameter ", absl::CEscape(name)), describe(tensor)});
  }
  for (const auto& [name, tensor] : model.Buffers()) {
    lines.push_back({absl::StrCat("buffer ", absl::CEscape(name)), describe(tensor)});
  }
  if (!model.file_hash().empty()) lines.push_back({"hash of the model's files", model.file_hash()});
  return lines;
}

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
