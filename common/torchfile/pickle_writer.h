// Writes Python's pickle format (protocol 2), as far as torch.load(weights_only=True) accepts it.
#ifndef MUSTER_COMMON_TORCHFILE_PICKLE_WRITER_H_
#define MUSTER_COMMON_TORCHFILE_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::torchfile {

// Writes values in the order of the calls. A dict takes keys and values in turn; a list and a tuple
// take values. Finish follows the one outermost value. Threading: one thread.
class PickleWriter {
 public:
  PickleWriter();

  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void Float(double value);
  void Text(std::string_view value);  // UTF-8

  void BeginDict();
  void EndDict();
  void BeginList();
  void EndList();
  void BeginTuple();
  void EndTuple();

  // Writes a contiguous float32 tensor on the CPU: the whole storage with this key (the file
  // data/KEY of a torch file).
  void Float32Tensor(const std::string& storage, const std::vector<int64_t>& shape);

  // The whole pickle. Called once, last.
  std::string Finish();

 private:
  void Op(char code) { bytes_ += code; }
  void Global(std::string_view module, std::string_view name);
  void Sizes(const std::vector<int64_t>& sizes);

  std::string bytes_;
};

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_PICKLE_WRITER_H_
