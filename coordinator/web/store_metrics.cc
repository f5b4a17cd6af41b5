#include "coordinator/web/store_metrics.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

namespace muster::web {

void AddStoreMetrics(const std::string& state_directory, bool writable, Exposition* out) {
  out->Gauge("muster_store_writable",
             "1 if musterd can write its database, 0 if not: then jobs continue, and changes wait.")
      .Set({}, writable ? 1 : 0);
  Metric size = out->Gauge("muster_store_size_bytes",
                           "Size of musterd's database, with its write-ahead log.");
  double bytes = 0;
  for (const char* name : {"/muster.db", "/muster.db-wal"}) {
    struct stat file{};
    if (stat((state_directory + name).c_str(), &file) == 0) {
      bytes += static_cast<double>(file.st_size);
    }
  }
  size.Set({}, bytes);
  Metric free = out->Gauge("muster_store_disk_free_bytes",
                           "Free space of the disk with musterd's state directory.");
  Metric whole = out->Gauge("muster_store_disk_size_bytes",
                            "Size of the disk with musterd's state directory.");
  struct statvfs disk{};
  if (statvfs(state_directory.c_str(), &disk) != 0) return;
  free.Set({}, static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize));
  whole.Set({}, static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize));
}

}  // namespace muster::web
