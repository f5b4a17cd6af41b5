// A new folder for one test, removed at its end.
#ifndef MUSTER_COMMON_FILES_TEMP_DIR_H_
#define MUSTER_COMMON_FILES_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace muster::files {

class TempDir {
 public:
  TempDir() : TempDir(std::getenv("TEST_TMPDIR")) {}
  // Makes a folder for Unix sockets, whose paths have at most 107 bytes.
  static TempDir Short() { return TempDir("/tmp"); }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TempDir(const char* base) {
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/muster-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }

  std::string path_;
};

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_TEMP_DIR_H_
