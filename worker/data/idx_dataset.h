// Images with labels from IDX files, the layout of MNIST (docs/reference/data.md). Pairs of files
// follow one another.
#ifndef MUSTER_WORKER_DATA_IDX_DATASET_H_
#define MUSTER_WORKER_DATA_IDX_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

struct IdxOptions {
  std::vector<std::string> images;  // [N, H, W], read as [N, 1, H, W], or [N, C, H, W]
  // [N], as many files as images; with Labels::kIgnored they are not opened.
  std::vector<std::string> labels;
  // A byte b becomes (b / 255 - mean) / std.
  double mean = 0;
  double std = 1;
};

// Unpacks gzip files, whatever their names, into memory, at most to the size that their own header
// says. Other files are mapped. Errors:
// - those of MakeRowDataset;
// - INVALID_ARGUMENT: lists of different lengths, a file of another kind than IDX with unsigned
//   bytes, targets that are numbers, or a scale beyond float32;
// - NOT_FOUND etc.: a file cannot be opened;
// - DATA_LOSS: a file is damaged, or shorter or longer than its header says.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const IdxOptions& options, const InputSpec& spec,
                                                 Labels has_labels = Labels::kNeeded);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_IDX_DATASET_H_
