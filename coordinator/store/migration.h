// Brings a database of an older musterd up to date.
#ifndef MUSTER_COORDINATOR_STORE_MIGRATION_H_
#define MUSTER_COORDINATOR_STORE_MIGRATION_H_

#include <sqlite3.h>

#include "absl/status/status.h"

namespace muster::store {

// Runs the migrations of schema.h that the file has not had, each in a transaction of its own:
// after a crash the file is of one version or of the next. A file without tables gets all of them.
// FAILED_PRECONDITION: a newer musterd wrote it. Else the errors of SqliteError (statement.h).
//
// What migrations may use besides SQLite's own functions, for values that were columns once:
//   step_metrics(step, generation, loss, learning_rate, grad_norm, samples, duration_ns,
//                perplexity, tokens, model_flops_per_second, skipped, loss_scale): a
//                v1::StepMetrics, serialized
//   validation_metrics(step, generation, loss, accuracy, perplexity, samples): the same of a
//                validation pass
// A field whose argument is null is not set; the text 'nan' is the number that is none.
absl::Status Migrate(sqlite3* db);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MIGRATION_H_
