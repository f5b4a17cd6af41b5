// The output file of a stage `predict`, on rank 0. It is written under a temporary name in the same
// folder, and gets its final name when it is complete (docs/how-to/predict.md).
#ifndef MUSTER_WORKER_TRAIN_PREDICT_PREDICTION_FILE_H_
#define MUSTER_WORKER_TRAIN_PREDICT_PREDICTION_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/exports/target.h"
#include "common/files/disk.h"
#include "worker/checkpoint/output_file.h"
#include "worker/train/job/job.h"
#include "worker/train/predict/predict.h"

namespace muster::train {

struct PredictionTarget {
  std::string path;
  bool overwrite = false;
  std::string job_name;
  Identity identity;
  exports::Inputs inputs = {};  // files that are never replaced
};

// Checks, at the start of a session, whether the stage can write its file. Makes the folder, tries
// to create a file there, and removes temporary files of earlier generations. A full disk is no
// error, because there may be space later. Errors:
// - ALREADY_EXISTS, only in the job's first generation: there is a file that no job of this name
//   wrote (exports::CheckOutput). A later generation may find the file of an earlier one, and
//   compares the bytes when the stage has run again.
// - FAILED_PRECONDITION: there is something that is never replaced.
// - Those of the file system.
absl::Status PreparePredictionFile(const PredictionTarget& target);

// Returns the bytes before the array: of a .npy file, or of a .safetensors file with one tensor,
// `name`.
absl::StatusOr<std::string> PredictionHeader(const std::string& path, const std::string& name,
                                             const PredictionArray& array);

// Threading: one thread. The destructor removes the temporary file if Place has not succeeded.
class PredictionFile {
 public:
  // Creates a file of this size. The space is allocated at once, so that a full disk is found
  // before anything is computed.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(const PredictionTarget& target,
                                                                uint64_t size, files::Disk& disk);
  ~PredictionFile();
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;

  const std::string& path() const { return target_.path; }

  absl::Status WriteAt(uint64_t offset, std::string_view bytes);

  enum class Placed {
    kNew,   // the file is the new one
    kSame,  // a file with the same bytes existed and was kept
  };
  // Makes the file durable and gives it its final name. Called once, after all bytes are written.
  // ALREADY_EXISTS: there is a file with other bytes that no job of this name wrote, and
  // `overwrite` is not set. After an error, the old file is unchanged.
  absl::StatusOr<Placed> Place();

 private:
  PredictionFile(PredictionTarget target, std::string temporary, files::Disk& disk)
      : target_(std::move(target)), temporary_(std::move(temporary)), disk_(disk) {}

  const PredictionTarget target_;
  const std::string temporary_;
  files::Disk& disk_;
  std::unique_ptr<checkpoint::OutputFile> file_;
  bool placed_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_PREDICTION_FILE_H_
