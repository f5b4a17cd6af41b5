// Brings a database of an older musterd up to date.
#ifndef MUSTER_COORDINATOR_STORE_MIGRATION_H_
#define MUSTER_COORDINATOR_STORE_MIGRATION_H_

#include <sqlite3.h>

#include "absl/status/status.h"

namespace muster::store {

// Runs the migrations of schema.h that the file has not had, each in a transaction of its own:
// after a crash the file is of one version or of the next. A file without tables gets all of them.
// FAILED_PRECONDITION: a newer musterd wrote it. RESOURCE_EXHAUSTED: the file has tables, which its
// migrations write again, and its disk has less free space than four times the size of the file;
// the file is unchanged. Otherwise the errors of SqliteError (statement.h).
//
// Functions that migrations may use besides SQLite's own, for values that older versions kept in
// columns:
//   step_metrics(step, generation, loss, learning_rate, grad_norm, samples, duration_ns,
//                perplexity, tokens, model_flops_per_second, skipped, loss_scale): a
//                v1::StepMetrics, serialized
//   validation_metrics(step, generation, loss, accuracy, perplexity, samples): a v1::StepMetrics
//                with a v1::Evaluation, serialized
// A field whose argument is null is not set; the text 'nan' stands for NaN.
absl::Status Migrate(sqlite3* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MIGRATION_H_
