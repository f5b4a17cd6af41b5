// The file of a stage `predict`, on rank 0: written under a temporary name beside it, and given its
// name when it is complete (docs/how-to/predict.md).
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

// At the start of a session: whether the stage will be able to write its file. Makes the folder,
// tries whether a file can be created there, and removes what earlier generations of the job left
// there. ALREADY_EXISTS, in the job's first generation only: there is a file that no job of this
// name wrote (exports::CheckOutput). A later generation may find what an earlier one wrote, and
// compares it when the stage has run again. FAILED_PRECONDITION: something that is never replaced.
// A full disk is no error, because there may be space later. Other errors: those of the file
// system.
absl::Status PreparePredictionFile(const PredictionTarget& target);

// The bytes before those of the array: of a file .npy, or of .safetensors with one tensor, `name`.
absl::StatusOr<std::string> PredictionHeader(const std::string& path, const std::string& name,
                                             const PredictionArray& array);

// Threading: one thread. A file that is destroyed before Place has succeeded is removed.
class PredictionFile {
 public:
  // Of this size. Its space is taken at once, so a full disk is found before anything is computed.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(const PredictionTarget& target,
                                                                uint64_t size, files::Disk& disk);
  ~PredictionFile();
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;

  const std::string& path() const { return target_.path; }

  absl::Status WriteAt(uint64_t offset, std::string_view bytes);

  enum class Placed {
    kNew,   // the file is the new one
    kSame,  // a file with the same bytes was there and was left there
  };
  // Makes the file durable and gives it its name. Called once, last, when every byte is written.
  // ALREADY_EXISTS: a file with other bytes is there, which no job of this name wrote, and
  // `overwrite` is not set. An old file is unchanged after an error.
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
