#include "worker/models/torchscript/checked_reader.h"

#include <algorithm>

namespace muster::models {

size_t CheckedReader::read(uint64_t pos, void* buf, size_t n, const char*) const {
  if (pos > size()) return 0;
  n = std::min<size_t>(n, size() - pos);
  last_ = {pos, n};
  const char* from = reinterpret_cast<const char*>(file_->data()) + pos;
  auto checked = checked_.find(last_);
  if (checked == checked_.end() && checking_) {
    checked = checked_.emplace(last_, std::string(from, n)).first;
  }
  if (checked != checked_.end()) from = checked->second.data();
  std::copy_n(from, n, static_cast<char*>(buf));
  return n;
}

}  // namespace muster::models
