#include "worker/models/convnet.h"

#include <string>
#include <vector>

#include "worker/models/convnet_units.h"

namespace muster::models {
namespace {

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

}  // namespace

std::unique_ptr<Model> CreateConvnet(const v1::ConvnetSpec& spec, uint64_t seed) {
  const ConvnetShape shape = {.channels = spec.inputs(0),
                              .height = spec.inputs(1),
                              .width = spec.inputs(2),
                              .widths = {spec.widths().begin(), spec.widths().end()},
                              .blocks = {spec.blocks().begin(), spec.blocks().end()},
                              .classes = spec.classes()};
  return std::make_unique<Convnet>(shape, seed);
}

}  // namespace muster::models
