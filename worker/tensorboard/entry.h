// A value with a tag, at a step: a number, which TensorBoard draws as a curve, or a text.
#ifndef MUSTER_WORKER_TENSORBOARD_ENTRY_H_
#define MUSTER_WORKER_TENSORBOARD_ENTRY_H_

#include <cstdint>
#include <string>
#include <variant>

namespace muster::tensorboard {

struct Entry {
  int64_t step = 0;      // optimizer steps done
  double wall_time = 0;  // seconds since 1970
  std::string tag;
  std::variant<double, std::string> value;

  friend bool operator==(const Entry&, const Entry&) = default;
};

// How many bytes it takes up in memory and in a file, not exactly.
inline size_t SizeOf(const Entry& entry) {
  const auto* text = std::get_if<std::string>(&entry.value);
  return sizeof(Entry) + entry.tag.size() + (text == nullptr ? 0 : text->size());
}

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_ENTRY_H_
