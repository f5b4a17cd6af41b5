// The differences between two checkpoints.
#ifndef MUSTER_CLIENT_CHECKPOINTS_COMPARE_H_
#define MUSTER_CLIENT_CHECKPOINTS_COMPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::checkpoints {

// A fact that two checkpoints state differently.
struct FactDifference {
  std::string name;
  std::string a;
  std::string b;
};

// A tensor that both checkpoints have, with different elements.
struct ValueDifference {
  std::string name;  // "param/transformer.wte.weight"
  int64_t elements = 0;
  int64_t different = 0;  // elements with other bits
  // The largest difference; NaN if an element is NaN in only one of the two.
  double largest = 0;
};

struct Comparison {
  // Facts of the training: the step, the place in the data, the settings.
  std::vector<FactDifference> facts;
  // Facts of the writing: the job, the generation, the strategy, the number of ranks.
  std::vector<FactDifference> origin;
  std::vector<std::string> only_in_a;
  std::vector<std::string> only_in_b;
  std::vector<FactDifference> shapes;  // or dtypes, by tensor
  std::vector<ValueDifference> values;
  int64_t equal_tensors = 0;

  // Returns whether training would continue in the same way from both. `origin` does not count.
  bool same() const {
    return facts.empty() && only_in_a.empty() && only_in_b.empty() && shapes.empty() &&
           values.empty();
  }
};

// Reads both checkpoints completely, and checks each block; the numbers of files may differ. Needs
// memory for a few blocks. Errors: those of manifest::TensorReader.
absl::StatusOr<Comparison> Compare(const std::string& a, const std::string& b);

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_COMPARE_H_
