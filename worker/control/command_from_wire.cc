#include "worker/control/command_from_wire.h"

#include "common/downloads/downloads.h"

namespace muster::control {

v1::Command CommandFromWire(v1::Command command, const Downloads& downloads) {
  if (!command.gather_optimizer_state().file().download()) return command;
  v1::OptimizerStateFile& file = *command.mutable_gather_optimizer_state()->mutable_file();
  file.set_path(DownloadPath(downloads.folder, downloads.job_id, command.number()));
  // What lies there is of a deleted job with this id, or what a generation that was killed had not
  // reported.
  file.set_overwrite(true);
  return command;
}

}  // namespace muster::control
