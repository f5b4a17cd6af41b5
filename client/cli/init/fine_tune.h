// The job file of `muster init fine-tune`. Pure.
#ifndef MUSTER_CLIENT_CLI_INIT_FINE_TUNE_H_
#define MUSTER_CLIENT_CLI_INIT_FINE_TUNE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace muster::cli {

struct FineTune {
  std::string name;   // of the job
  std::string model;  // the model's folder, as the job file names it
  std::string data;   // the file that the documents come from, for people
  std::string train;  // files of documents, as the job file names them
  std::string validate;
  int64_t context = 0;
  int64_t ranks = 1;
  bool cuda = false;
  // The tokens of the training documents.
  int64_t tokens = 0;
};

// Returns the positions that the model of a config.json has. INVALID_ARGUMENT: no JSON object, or
// nothing that says how many.
absl::StatusOr<int64_t> PositionsOf(const std::string& config);

// Returns a name for a job that is made from these two paths: letters, digits and hyphens.
std::string JobName(const std::string& model, const std::string& data);

// Returns the job file, with a comment for each setting that users may want to change.
std::string FineTuneJob(const FineTune& facts);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_INIT_FINE_TUNE_H_
