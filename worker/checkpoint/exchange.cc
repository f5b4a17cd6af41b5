#include "worker/checkpoint/exchange.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

// The fixed-size form of a result for sending, as int64 words.
struct Record {
  int64_t code;
  uint64_t size;
  char hash[32];
  char text[464];
};
static_assert(sizeof(Record) == 512 && sizeof(Record) % sizeof(int64_t) == 0);
constexpr int64_t kWords = sizeof(Record) / sizeof(int64_t);

Record Encode(const PartResult& result) {
  Record record = {};
  record.code = static_cast<int64_t>(result.status().code());
  if (result.ok()) {
    record.size = result->size;
    std::memcpy(record.hash, result->hash.data(),
                std::min(result->hash.size(), sizeof(record.hash)));
  } else {
    const std::string text = Message(result.status());
    std::memcpy(record.text, text.data(), std::min(text.size(), sizeof(record.text)));
  }
  return record;
}

PartResult Decode(const Record& record) {
  if (record.code == 0) {
    return manifest::FileRecord{
        "", record.size, std::string(record.hash, strnlen(record.hash, sizeof(record.hash)))};
  }
  return absl::Status(static_cast<absl::StatusCode>(record.code),
                      std::string(record.text, strnlen(record.text, sizeof(record.text))));
}

}  // namespace

PartResult ToResult(const absl::Status& status) {
  if (!status.ok()) return status;
  return manifest::FileRecord{};
}

absl::StatusOr<std::vector<PartResult>> Exchange(comm::Communicator& communicator,
                                                 const PartResult& mine, const char* what,
                                                 int64_t step) {
  const int64_t ranks = communicator.world_size();
  const at::Tensor in = at::zeros({kWords}, at::kLong);
  const at::Tensor out = at::zeros({ranks * kWords}, at::kLong);
  const Record record = Encode(mine);
  std::memcpy(in.data_ptr<int64_t>(), &record, sizeof(record));
  RETURN_IF_ERROR(communicator.AllGather(out, in, {what, step})->Wait());
  std::vector<PartResult> results;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Record theirs;
    std::memcpy(&theirs, out.data_ptr<int64_t>() + rank * kWords, sizeof(theirs));
    results.push_back(Decode(theirs));
  }
  return results;
}

absl::StatusOr<std::string> TellAll(comm::Communicator& communicator, const std::string& text,
                                    const char* what) {
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  RETURN_IF_ERROR(communicator.Broadcast(size, 0, {what, 0})->Wait());
  const int64_t bytes = size.item<int64_t>();
  if (bytes == 0) return std::string();
  // Every communicator can broadcast words, so the bytes are sent as words.
  const at::Tensor words = at::zeros({(bytes + 7) / 8}, at::kLong);
  char* const data = reinterpret_cast<char*>(words.data_ptr<int64_t>());
  if (communicator.rank() == 0) std::memcpy(data, text.data(), text.size());
  RETURN_IF_ERROR(communicator.Broadcast(words, 0, {what, 1})->Wait());
  return std::string(data, static_cast<size_t>(bytes));
}

absl::StatusOr<std::vector<std::string>> GatherTexts(comm::Communicator& communicator,
                                                     const std::string& mine, const char* what,
                                                     int64_t step) {
  const int64_t ranks = communicator.world_size();
  const at::Tensor size = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  const at::Tensor sizes = at::zeros({ranks}, at::kLong);
  RETURN_IF_ERROR(communicator.AllGather(sizes, size, {what, step})->Wait());
  const int64_t* const bytes = sizes.const_data_ptr<int64_t>();
  const int64_t most = *std::max_element(bytes, bytes + ranks);
  std::vector<std::string> texts(ranks);
  if (most == 0) return texts;
  // All texts are padded to one length, as words, which every communicator takes.
  const int64_t words = (most + 7) / 8;
  const at::Tensor in = at::zeros({words}, at::kLong);
  const at::Tensor out = at::zeros({ranks * words}, at::kLong);
  std::memcpy(in.mutable_data_ptr(), mine.data(), mine.size());
  RETURN_IF_ERROR(communicator.AllGather(out, in, {what, step})->Wait());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    texts[rank].assign(reinterpret_cast<const char*>(out.const_data_ptr<int64_t>() + rank * words),
                       bytes[rank]);
  }
  return texts;
}

std::vector<int64_t> Failed(const std::vector<PartResult>& results) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (!results[rank].ok()) ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

absl::Status Combine(const std::vector<PartResult>& results) {
  absl::StatusCode code = absl::StatusCode::kOk;
  Problems problems;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].ok()) continue;
    if (code == absl::StatusCode::kOk) code = results[rank].status().code();
    problems.Add(absl::StrCat("rank ", rank, ": ", Message(results[rank].status())));
  }
  return absl::Status(code, problems.Text());
}

absl::Status TellAll(comm::Communicator& communicator, const absl::Status& status, const char* what,
                     int64_t step, absl::Status* told) {
  ASSIGN_OR_RETURN(const auto results, Exchange(communicator, ToResult(status), what, step));
  *told = results[0].status();
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
