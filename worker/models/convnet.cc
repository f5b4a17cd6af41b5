#include "worker/models/convnet.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/models/convnet_units.h"
#include "worker/models/options.h"

namespace muster::models {
namespace {

// A channel count or a side beyond this is a slip of the pen; products of three of them fit 64 bits.
constexpr int64_t kMaxSize = 1 << 16;

class Convnet : public Model {
 public:
  Convnet(const ConvnetShape& shape, uint64_t seed)
      : Model("convnet", MakeConvnetRoot(shape, seed)), shape_(shape) {}

  InputSpec UnitsInput() const override {
    return {.kind = InputSpec::Kind::kRows,
            .row_elements = shape_.channels * shape_.height * shape_.width,
            .classes = shape_.classes};
  }

  double ForwardFlops() const override {
    double flops = 0;
    int64_t height = shape_.height;
    int64_t width = shape_.width;
    int64_t in = shape_.channels;
    const auto conv = [&](int64_t from, int64_t to, int64_t kernel) {
      flops += 2.0 * height * width * from * to * kernel * kernel;
    };
    conv(in, shape_.widths[0], 3);
    in = shape_.widths[0];
    for (size_t stage = 0; stage < shape_.widths.size(); ++stage) {
      const int64_t out = shape_.widths[stage];
      if (stage > 0) {
        height = HalfSide(height);
        width = HalfSide(width);
        conv(in, out, 1);
      }
      for (int64_t block = 0; block < shape_.blocks[stage]; ++block) {
        conv(in, out, 3);
        conv(out, out, 3);
        in = out;
      }
    }
    return flops + 2.0 * in * shape_.classes;
  }

 private:
  const ConvnetShape shape_;
};

// Notes what does not fit together.
void Check(const ConvnetShape& shape, OptionReader* reader) {
  if (shape.widths.empty()) reader->Problem("widths: expected one number or more, found none");
  if (shape.blocks.size() != shape.widths.size()) {
    reader->Problem(absl::StrCat("blocks: expected as many numbers as widths, ", shape.widths.size(),
                                 ", found ", shape.blocks.size()));
  }
  std::vector<int64_t> sizes = shape.widths;
  sizes.insert(sizes.end(), {shape.channels, shape.height, shape.width});
  for (const int64_t size : sizes) {
    if (size > kMaxSize) {
      reader->Problem(absl::StrCat("inputs, widths: expected numbers up to ", kMaxSize, ", found ", size));
      return;
    }
  }
  int64_t height = shape.height;
  int64_t width = shape.width;
  for (size_t stage = 1; stage < shape.widths.size(); ++stage) {
    if (height == 1 && width == 1) {
      reader->Problem(absl::StrCat("widths: expected at most ", stage, " stages, after which ",
                                   shape.height, " x ", shape.width,
                                   " pixels are down to one, found ", shape.widths.size()));
      return;
    }
    height = HalfSide(height);
    width = HalfSide(width);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateConvnet(const nlohmann::json& options, uint64_t seed) {
  OptionReader reader("convnet", options);
  const std::vector<int64_t> inputs = reader.Sizes("inputs");
  ConvnetShape shape;
  shape.widths = reader.Sizes("widths");
  shape.blocks = reader.Sizes("blocks");
  shape.classes = reader.Size("classes");
  if (reader.ok()) {
    if (inputs.size() == 3) {
      shape.channels = inputs[0];
      shape.height = inputs[1];
      shape.width = inputs[2];
      Check(shape, &reader);
    } else {
      reader.Problem(absl::StrCat("inputs: expected 3 numbers, channels, height and width, found ",
                                  inputs.size()));
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  return std::make_unique<Convnet>(shape, seed);
}

}  // namespace muster::models
