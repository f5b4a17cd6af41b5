#include "coordinator/store/migration.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/statement.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::store {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

bool Is(sqlite3_value* value) { return sqlite3_value_type(value) != SQLITE_NULL; }
double Number(sqlite3_value* value) {
  if (sqlite3_value_type(value) == SQLITE_TEXT) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_value_double(value);
}
uint64_t Count(sqlite3_value* value) { return static_cast<uint64_t>(sqlite3_value_int64(value)); }

void Give(sqlite3_context* context, const v1::StepMetrics& metrics) {
  const std::string bytes = metrics.SerializeAsString();
  sqlite3_result_blob64(context, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
}

void StepMetrics(sqlite3_context* context, int, sqlite3_value** values) {
  v1::StepMetrics metrics;
  metrics.set_step(Count(values[0]));
  metrics.set_generation(Count(values[1]));
  if (Is(values[2])) metrics.set_loss(Number(values[2]));
  if (Is(values[3])) metrics.set_learning_rate(Number(values[3]));
  if (Is(values[4])) metrics.set_grad_norm(Number(values[4]));
  metrics.set_samples(Count(values[5]));
  if (Is(values[6])) {
    const int64_t duration = sqlite3_value_int64(values[6]);
    metrics.mutable_duration()->set_seconds(duration / kNanosecondsPerSecond);
    metrics.mutable_duration()->set_nanos(static_cast<int32_t>(duration % kNanosecondsPerSecond));
  }
  if (Is(values[7])) metrics.set_perplexity(Number(values[7]));
  if (Is(values[8])) metrics.set_tokens(Count(values[8]));
  if (Is(values[9])) metrics.set_model_flops_per_second(Number(values[9]));
  metrics.set_skipped(Count(values[10]) != 0);
  if (Is(values[11])) metrics.set_loss_scale(Number(values[11]));
  Give(context, metrics);
}

void ValidationMetrics(sqlite3_context* context, int, sqlite3_value** values) {
  v1::StepMetrics metrics;
  metrics.set_step(Count(values[0]));
  metrics.set_generation(Count(values[1]));
  v1::Evaluation& validation = *metrics.mutable_validation();
  if (Is(values[2])) validation.set_loss(Number(values[2]));
  if (Is(values[3])) validation.set_accuracy(Number(values[3]));
  if (Is(values[4])) validation.set_perplexity(Number(values[4]));
  validation.set_samples(Count(values[5]));
  Give(context, metrics);
}

using Function = void (*)(sqlite3_context*, int, sqlite3_value**);

absl::Status Add(sqlite3* db, const char* name, int arguments, Function function) {
  if (sqlite3_create_function_v2(db, name, arguments, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                                 function, nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return SqliteError(db, absl::StrCat("function ", name));
}

absl::StatusOr<int> VersionOf(sqlite3* db) {
  StatementCache cache;
  int version = 0;
  absl::Status status;
  {
    Statement statement(db, &cache, "PRAGMA user_version");
    if (statement.Next()) version = static_cast<int>(statement.Int());
    status = statement.status();
  }
  for (const auto& [sql, statement] : cache) sqlite3_finalize(statement);
  RETURN_IF_ERROR(status);
  return version;
}

// Until a migration's transaction is committed, the disk has to hold the old tables, the new ones,
// and both again in SQLite's log of the transaction.
constexpr uint64_t kRoomFactor = 4;

absl::Status CheckRoomToRewrite(sqlite3* db) {
  const std::filesystem::path file = sqlite3_db_filename(db, "main");
  std::error_code error;
  uint64_t size = std::filesystem::file_size(file, error);
  if (error) return absl::UnavailableError(absl::StrCat("size of the file: ", error.message()));
  // After a crash, newer contents of the file may still lie in the log beside it.
  const uint64_t log = std::filesystem::file_size(file.string() + "-wal", error);
  if (!error) size += log;
  const uint64_t needed = kRoomFactor * size;
  const uint64_t available = std::filesystem::space(file.parent_path(), error).available;
  if (error) return absl::UnavailableError(absl::StrCat("free space: ", error.message()));
  if (available >= needed) return absl::OkStatus();
  constexpr uint64_t kMiB = 1 << 20;
  return absl::ResourceExhaustedError(absl::StrCat(
      "an older musterd wrote this file; to bring it to schema version ", kSchemaVersion,
      " the disk needs ", needed / kMiB + 1, " MiB of free space and has ", available / kMiB,
      " MiB; the file was not changed; free space, then start musterd again"));
}

}  // namespace

absl::Status Migrate(sqlite3* db) {
  ASSIGN_OR_RETURN(int version, VersionOf(db));
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the file is of schema version ", version,
                                                      ", this musterd knows up to ", kSchemaVersion,
                                                      "; use the newer musterd that wrote it"));
  }
  RETURN_IF_ERROR(Add(db, "step_metrics", 12, StepMetrics));
  RETURN_IF_ERROR(Add(db, "validation_metrics", 6, ValidationMetrics));
  if (version > 0 && version < kSchemaVersion) RETURN_IF_ERROR(CheckRoomToRewrite(db));
  for (; version < kSchemaVersion; ++version) {
    const std::string sql = absl::StrCat("BEGIN IMMEDIATE;", kMigrations[version],
                                         "PRAGMA user_version=", version + 1, ";COMMIT;");
    // The text of the migration would hide the cause of the error.
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      return SqliteError(db, absl::StrCat("migration to schema version ", version + 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::store
