#include "worker/data/npy.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"

namespace muster::data {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
// The largest accepted header, beyond what NumPy itself writes or reads.
constexpr size_t kMostHeader = 1 << 16;
constexpr size_t kMostDimensions = 64;

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": not a whole .npy file: ", what));
}

// Parses the header, a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
// padded with spaces and ended by a line feed. Reads only this part of Python.
class Literal {
 public:
  Literal(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  absl::StatusOr<NpyHeader> Parse() {
    NpyHeader header;
    std::set<std::string> keys;
    RETURN_IF_ERROR(Expect('{'));
    while (!Take('}')) {
      ASSIGN_OR_RETURN(const std::string key, String());
      RETURN_IF_ERROR(Expect(':'));
      if (!keys.insert(key).second) return Unexpected(absl::StrCat("'", key, "' twice"));
      if (key == "descr") {
        if (Peek() == '[') {
          return absl::InvalidArgumentError(absl::StrCat(
              path_,
              ": expected a dtype of one number, such as '<f4', found one of several fields; in "
              "Python, numpy.save('new.npy', numpy.load(FILE)['FIELD']) writes one of them"));
        }
        ASSIGN_OR_RETURN(header.descr, String());
      } else if (key == "fortran_order") {
        ASSIGN_OR_RETURN(header.fortran_order, Bool());
      } else if (key == "shape") {
        ASSIGN_OR_RETURN(header.shape, Shape());
      } else {
        return Unexpected(absl::StrCat("the key '", key, "'"));
      }
      if (!Take(',') && Peek() != '}') return Unexpected("no ',' or '}' after a value");
    }
    if (Peek() != '\0' || keys.size() != 3) {
      return Unexpected(keys.size() != 3 ? "keys missing" : "more after the '}'");
    }
    return header;
  }

 private:
  absl::Status Unexpected(const std::string& found) const {
    return Broken(path_,
                  absl::StrCat("the header: expected {'descr': ..., 'fortran_order': ..., 'shape': "
                               "...}, found ",
                               found));
  }

  // The next character that is not a space; 0 at the end.
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(char c) {
    return Take(c) ? absl::OkStatus() : Unexpected(absl::StrCat("no '", std::string(1, c), "'"));
  }

  absl::StatusOr<std::string> String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Unexpected("no string where one is expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Unexpected("a string without end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    if (value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_<>|=[],/") != std::string::npos) {
      return Unexpected("a string of strange characters");
    }
    at_ = end + 1;
    return value;
  }

  absl::StatusOr<bool> Bool() {
    Peek();
    for (const auto& [word, value] :
         {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    return Unexpected("neither True nor False");
  }

  absl::StatusOr<std::vector<int64_t>> Shape() {
    std::vector<int64_t> shape;
    RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      if (shape.size() == kMostDimensions) return Unexpected("too many dimensions");
      ASSIGN_OR_RETURN(shape.emplace_back(), Size());
      if (!Take(',') && Peek() != ')') return Unexpected("no ',' or ')' in the shape");
    }
    return shape;
  }

  absl::StatusOr<int64_t> Size() {
    int64_t value = 0;
    const char first = Peek();
    if (first < '0' || first > '9') return Unexpected("a shape that is no list of sizes");
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        return Unexpected("a size beyond 64 bits");
      }
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long
    return value;
  }

  const std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(const uint8_t* data, size_t size,
                                         const std::string& path) {
  const size_t common = std::min(size, kMagic.size());
  if (common > 0 && std::memcmp(data, kMagic.data(), common) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a .npy file: it does not begin with \\x93NUMPY"));
  }
  // The version is followed by the length of the header: 2 bytes in version 1, 4 in later versions.
  if (size < 10) return Broken(path, absl::StrCat("expected a header, found ", size, " bytes"));
  const int major = data[6];
  if (major < 1 || major > 3 || data[7] != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": .npy: expected format version 1.0, 2.0 or 3.0, found ", major, ".", data[7]));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t start = 8 + length_bytes;
  if (size < start) return Broken(path, absl::StrCat("expected a header, found ", size, " bytes"));
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= size_t{data[8 + i]} << (8 * i);
  if (length > kMostHeader) {
    return Broken(path, absl::StrCat("expected a header of at most ", kMostHeader,
                                     " bytes, found a length of ", length));
  }
  if (length > size - start) {
    return Broken(path, absl::StrCat("expected a header of ", length, " bytes, found ",
                                     size - start, " bytes after its length"));
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + start, length);
  ASSIGN_OR_RETURN(NpyHeader header, Literal(text, path).Parse());
  header.data_offset = start + length;
  return header;
}

std::string MakeNpyHeader(const std::string& descr, const std::vector<int64_t>& shape) {
  constexpr size_t kStart = 10;  // the magic, the version, and the length
  constexpr size_t kAlignment = 64;
  // The shape is written like Python's tuples: "(3, 4)", "(3,)", "()".
  std::string text = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  // numpy.save leaves room for a first size of 20 digits, so that a file can be made longer later.
  if (!shape.empty()) text.append(21 - absl::StrCat(shape[0]).size(), ' ');
  text.append(kAlignment - 1 - (kStart + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header.append("\x01\x00", 2);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace muster::data
