// The order of samples that come from several parts in given shares. Pure.
//
// Sample j of a part with n samples and the weight w has the time (j + 1/2) / w, computed in
// float64; after the last sample of a part follows its first one again, so j goes on beyond n. The
// mixture has all samples in the order of their times, and of equal times in the order of the
// parts. An epoch ends with the first sample with which every sample of every part has been used.
//
// In Python: sorted(((j + 0.5) / w, part, j % n) for ...), up to the largest of the times of the
// parts' samples n - 1.
#ifndef MUSTER_WORKER_DATA_TOKENS_MIXTURE_H_
#define MUSTER_WORKER_DATA_TOKENS_MIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

class MixtureOrder {
 public:
  struct Part {
    int64_t samples = 0;  // at least 1
    double weight = 0;    // above 0, finite
  };
  struct Place {
    size_t part = 0;
    int64_t sample = 0;

    friend bool operator==(const Place&, const Place&) = default;
  };

  explicit MixtureOrder(std::vector<Part> parts);

  // The samples of an epoch.
  int64_t size() const { return size_; }
  // sample: in [0, size).
  Place At(int64_t sample) const;
  // The samples of a part in one epoch, at least as many as the part has.
  int64_t Used(size_t part) const;

 private:
  double Time(size_t part, int64_t sample) const {
    return (static_cast<double>(sample) + 0.5) / parts_[part].weight;
  }
  // The number of samples of a part before this time.
  int64_t Before(size_t part, double time) const;

  const std::vector<Part> parts_;
  double weights_ = 0;  // of all parts together
  // The last sample of an epoch.
  double last_time_ = 0;
  size_t last_part_ = 0;
  int64_t size_ = 0;
};

// Makes one data set of several, of tokens or documents, each with at least one sample. Rows of one
// batch are filled up to the longest. INVALID_ARGUMENT: two were made with different tokenizers, or
// an epoch would have more than 2^31 samples.
absl::StatusOr<std::unique_ptr<Dataset>> MakeMixture(std::vector<std::unique_ptr<Dataset>> parts,
                                                     const std::vector<double>& weights,
                                                     const InputSpec& spec);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKENS_MIXTURE_H_
