#include "worker/train/rollcall/unused_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::train {

void UnusedParameters::Note(int64_t step, const std::vector<size_t>& unused) {
  if (notices_ == kMostNotices) return;
  for (const size_t index : unused) {
    if (told_[index] || first_[index] != 0) continue;
    first_[index] = step;
    news_ = true;
  }
}

absl::StatusOr<Notice> UnusedParameters::Exchange(int64_t step, comm::Communicator* communicator) {
  const auto count = static_cast<int64_t>(names_.size());
  const at::Tensor mine = device::HostTensor(first_);
  const at::Tensor all = at::empty({communicator->world_size() * count}, at::kLong);
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {"unused parameters", step})->Wait());
  const auto values = device::HostValues<int64_t>(all);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t& first = first_[i % names_.size()];
    if (values[i] != 0) first = first == 0 ? values[i] : std::min(first, values[i]);
  }
  ++notices_;
  std::string text = DescribeUnused(names_, first_, notices_ == kMostNotices);
  for (size_t i = 0; i < first_.size(); ++i) told_[i] = told_[i] || first_[i] != 0;
  std::fill(first_.begin(), first_.end(), 0);
  news_ = false;
  return Notice{"PARAMETERS_UNUSED", std::move(text), step};
}

std::string DescribeUnused(const std::vector<std::string>& names, const std::vector<int64_t>& first,
                           bool last) {
  constexpr int64_t kNamed = 3;
  int64_t count = 0;
  int64_t step = 0;  // the step of the first named parameter
  bool together = true;
  for (const int64_t each : first) {
    if (each == 0) continue;
    if (++count == 1) step = each;
    together = together && each == step;
  }
  std::string list;
  int64_t named = 0;
  for (size_t i = 0; i < names.size() && named < kNamed; ++i) {
    if (first[i] == 0) continue;
    absl::StrAppend(&list, named++ == 0 ? "" : ", ", names[i]);
    if (!together) absl::StrAppend(&list, " (in step ", first[i], ")");
  }
  if (count > named) absl::StrAppend(&list, " and ", count - named, " more");
  return absl::StrCat(
      "no rank used ", count, " trainable parameter", count == 1 ? "" : "s",
      together ? absl::StrCat(" in step ", step) : "", ": ", list,
      "; in each such step a parameter is left as it is, without weight decay and momentum",
      last ? "; no further notice of this kind follows in this start of the job" : "");
}

}  // namespace muster::train
