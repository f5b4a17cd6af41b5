// Whether the rows of a data set have their numbers in the order of the model's input.
#ifndef MUSTER_WORKER_TRAIN_DATA_ROW_SHAPE_H_
#define MUSTER_WORKER_TRAIN_DATA_ROW_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::train {

// `row`: the dimensions of a row of the data, with as many numbers as the model takes. A row may
// join neighbouring dimensions of the model's input ([784] or [28, 28] for [1, 28, 28]) or split
// them. INVALID_ARGUMENT: it is another order of the dimensions, such as [28, 28, 3] for [3, 28,
// 28]. OK for a model whose input has no shape.
absl::Status CheckRowShape(const v1::ModelSpec& model, const std::vector<int64_t>& row);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_ROW_SHAPE_H_
