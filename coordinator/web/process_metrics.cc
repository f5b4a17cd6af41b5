#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "common/process/process_stat.h"
#include "coordinator/web/metrics.h"

namespace muster::web {
namespace {

// Returns the memory in pages (proc(5)).
std::optional<double> ResidentPages() {
  double size = 0, resident = 0;
  std::ifstream file("/proc/self/statm");
  if (!(file >> size >> resident)) return std::nullopt;
  return resident;
}

// Returns when the machine was started, in seconds since 1970.
std::optional<double> BootTime() {
  std::ifstream file("/proc/stat");
  double seconds = 0;
  for (std::string word; file >> word;) {
    if (word == "btime" && file >> seconds) return seconds;
  }
  return std::nullopt;
}

std::optional<double> OpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator folder("/proc/self/fd", error);
  if (error) return std::nullopt;
  // One of the descriptors belongs to this folder.
  return static_cast<double>(std::distance(begin(folder), end(folder)) - 1);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

void AddProcessMetrics(Exposition* out) {
  out->Counter("muster_process_cpu_seconds_total",
               "Time that musterd has used on processors, in user mode and in the kernel.")
      .Set({}, CpuSeconds());
  Metric resident = out->Gauge("muster_process_resident_memory_bytes",
                               "Memory of musterd's process as the kernel counts it.");
  if (const auto pages = ResidentPages()) {
    resident.Set({}, *pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  out->Gauge("muster_process_open_fds", "Number of files and connections that musterd has open.")
      .Set({}, OpenFiles());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  out->Gauge("muster_process_max_fds",
             "Number of files and connections that musterd may have open.")
      .Set({}, static_cast<double>(limit.rlim_cur));
  Metric start = out->Gauge("muster_process_start_time_seconds",
                            "When musterd was started, in seconds since 1970-01-01 (UTC).");
  const auto stat = process::ReadProcessStat(getpid());
  const auto boot = BootTime();
  if (stat.ok() && boot.has_value()) {
    const auto ticks = static_cast<double>(stat->start_time);
    start.Set({}, *boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
  }
}

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
