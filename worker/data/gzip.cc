#include "worker/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"

namespace muster::data {
namespace {

// zlib counts in unsigned int.
constexpr size_t kMostAtOnce = size_t{1} << 30;
// inflateInit2: the largest window, gzip only.
constexpr int kGzipOnly = 15 + 16;

}  // namespace

struct Gunzip::Stream {
  z_stream z = {};
  bool ready = false;
};

Gunzip::Gunzip(const uint8_t* data, size_t size, std::string path)
    : path_(std::move(path)), stream_(std::make_unique<Stream>()), rest_(data), rest_size_(size) {
  stream_->ready = inflateInit2(&stream_->z, kGzipOnly) == Z_OK;
}

Gunzip::~Gunzip() {
  if (stream_->ready) inflateEnd(&stream_->z);
}

absl::Status Gunzip::Broken(const std::string& what) const {
  return absl::DataLossError(absl::StrCat(path_, ": not a whole gzip file: ", what));
}

absl::StatusOr<size_t> Gunzip::Read(uint8_t* out, size_t count) {
  if (!stream_->ready) return absl::ResourceExhaustedError("zlib: out of memory");
  z_stream& z = stream_->z;
  size_t unpacked = 0;
  while (unpacked < count && !done_) {
    if (z.avail_in == 0) {
      if (rest_size_ == 0) return Broken("it ends within its data");
      const size_t more = std::min(rest_size_, kMostAtOnce);
      z.next_in = const_cast<Bytef*>(rest_);
      z.avail_in = static_cast<uInt>(more);
      rest_ += more;
      rest_size_ -= more;
    }
    const size_t room = std::min(count - unpacked, activity::kBlockBytes);
    z.next_out = out + unpacked;
    z.avail_out = static_cast<uInt>(room);
    const int result = inflate(&z, Z_NO_FLUSH);
    unpacked += room - z.avail_out;
    activity::Moved();
    if (result == Z_STREAM_END) {
      done_ = z.avail_in == 0 && rest_size_ == 0;
      if (!done_) inflateReset(&z);
    } else if (result == Z_MEM_ERROR) {
      return absl::ResourceExhaustedError(absl::StrCat(path_, ": zlib: out of memory"));
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return Broken(z.msg != nullptr ? z.msg : "its data cannot be unpacked");
    }
  }
  return unpacked;
}

}  // namespace muster::data
